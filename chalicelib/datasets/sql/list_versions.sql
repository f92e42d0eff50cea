-- Every version of a dataset, newest first, without the documents and the report (they are long).
-- index:  version_pkey
select dataset_id
     , number
     , job_id
     , fence
     , definition_revision
     , source_name
     , source_revision
     , issued_at
     , records
     , files
     , triples
     , withdrawn_at
     , withdrawn_by
  from dataset.version
 where dataset_id = %(dataset)s
 order by number desc;
