-- A revision of a dataset's definition, the newest one if none is given (a deleted dataset has no newest).
-- index:  definition_pkey, dataset_pkey
select definition.dataset_id
     , definition.revision
     , definition.body
     , definition.etag
     , definition.created_at
  from dataset.definition as definition
  join dataset.dataset as dataset
    on dataset.id = definition.dataset_id
   and (dataset.deleted_at is null or %(revision)s::int is not null)
 where definition.dataset_id = %(dataset)s
   and revision = coalesce(%(revision)s::int, revision)
 order by revision desc
 limit 1;
