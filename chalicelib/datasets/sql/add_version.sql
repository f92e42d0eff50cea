-- Add a version and make it the current one, if it is the next; no row where it isn't.
-- fence:  the caller holds the dataset's lock and has checked the job's claim under it
-- index:  dataset_pkey
with counted as (
    update dataset.dataset
       set last_version    = %(number)s,
           current_version = %(number)s
     where id = %(dataset)s
       and last_version = %(number)s - 1
    returning id
)
insert into dataset.version
       ( dataset_id, number, job_id, fence, definition_revision, source_name, source_revision
       , issued_at, records, files, documents, report, triples )
select counted.id
     , %(number)s
     , %(job)s
     , %(fence)s
     , %(definition)s
     , %(source)s
     , %(source_revision)s
     , %(issued_at)s
     , %(records)s
     , %(files)s
     , %(documents)s
     , %(report)s
     , %(triples)s
  from counted
returning number;
