-- Every source at its newest revision.
-- index:  source_pkey
select distinct on (name)
       name
     , revision
     , connection
     , relation
     , query
     , file
     , store
     , created_at
  from dataset.source
 order by name, revision desc;
