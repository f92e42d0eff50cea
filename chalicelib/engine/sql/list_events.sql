-- What happened to a job, oldest first.
-- fence:  none, it only reads
-- index:  job_event_job_id
select at, kind, state, claim_id, attempts, details from engine.job_event where job_id = %(job_id)s order by id
