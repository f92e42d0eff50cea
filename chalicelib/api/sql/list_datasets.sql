-- A page of datasets in the order of their ids, with what is current of each; deleted ones aren't listed.
-- index:  dataset_pkey, definition_pkey, version_pkey
select dataset.id
     , definition.revision
     , definition.body -> 'title' as title
     , version.number
     , version.issued_at
     , version.records
  from dataset.dataset as dataset
  left join lateral (select revision, body
                       from dataset.definition
                      where dataset_id = dataset.id
                      order by revision desc
                      limit 1) as definition on true
  left join dataset.version as version
    on version.dataset_id = dataset.id
   and version.number = dataset.current_version
 where dataset.id > coalesce(%(after)s::text, '')
   and dataset.id like %(pattern)s
   and dataset.deleted_at is null
   and (dataset.current_version is not null) = coalesce(%(published)s::bool, dataset.current_version is not null)
 order by dataset.id
 limit %(limit)s;
