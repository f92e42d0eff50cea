-- Every version of a dataset, newest first, without the documents.
-- index:  version_pkey
select version.dataset_id
     , version.number
     , version.job_id
     , version.definition_revision
     , version.issued_at
     , version.records
     , version.files
     , version.withdrawn_at
     , dataset.current_version = version.number as is_current
  from dataset.dataset as dataset
  join dataset.version as version
    on version.dataset_id = dataset.id
 where dataset.id = %(dataset)s
 order by version.number desc;
