-- Remove the record of a failure.
-- fence:  none
-- index:  failure_pkey
delete from engine.failure where job_id = %(job_id)s returning job_id
