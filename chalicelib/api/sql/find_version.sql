-- One version of a dataset, the current one if no number is given, with one of its documents (they are long).
-- index:  version_pkey, dataset_pkey
select version.dataset_id
     , version.number
     , version.job_id
     , version.definition_revision
     , version.issued_at
     , version.records
     , version.files
     , version.withdrawn_at
     , version.documents ->> %(document)s as document
     , dataset.current_version = version.number as is_current
  from dataset.dataset as dataset
  join dataset.version as version
    on version.dataset_id = dataset.id
   and version.number = coalesce(%(number)s::int, dataset.current_version)
 where dataset.id = %(dataset)s;
