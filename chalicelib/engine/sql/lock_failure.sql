-- The record of a failure, for the transaction that requeues it.
-- fence:  FOR UPDATE: one requeue at a time
-- index:  failure_pkey
select * from engine.failure where job_id = %(job_id)s for update
