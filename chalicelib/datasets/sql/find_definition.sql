-- A revision of a dataset's definition, the newest one if none is given.
-- index:  definition_pkey
select dataset_id
     , revision
     , body
     , etag
     , created_at
  from dataset.definition
 where dataset_id = %(dataset)s
   and revision = coalesce(%(revision)s::int, revision)
 order by revision desc
 limit 1;
