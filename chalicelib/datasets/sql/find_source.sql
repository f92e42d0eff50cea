-- A revision of a source, the newest one if none is given.
-- index:  source_pkey
select name
     , revision
     , connection
     , relation
     , query
     , file
     , store
     , created_at
  from dataset.source
 where name = %(name)s
   and revision = coalesce(%(revision)s::int, revision)
 order by revision desc
 limit 1;
