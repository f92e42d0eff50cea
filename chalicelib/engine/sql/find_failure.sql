-- The record of a job that failed.
-- fence:  none, it only reads
-- index:  failure_pkey
select * from engine.failure where job_id = %(job_id)s
