-- Every connection, or the one of a name.
-- index:  connection_pkey
select name
     , secret
     , max_jobs
     , statement_timeout
     , created_at
  from dataset.connection
 where name = coalesce(%(name)s, name)
 order by name;
