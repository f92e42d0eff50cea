-- The export of a publication while a worker owns it and has begun to write files.
-- fence:  none: the demo only looks
-- index:  export_pkey, job_pkey, ledger_notes_a_thing_once
select job.id
     , job.claim_id
     , job.locked_until
  from dataset.export
  join engine.job on job.id = export.job_id
 where export.key = %(publication)s
   and job.finished_at is null
   and exists (select from engine.ledger where ledger.job_id = job.id and ledger.claim_id = job.claim_id)
