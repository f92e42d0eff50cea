-- Note which job took a failure's place.
-- fence:  under the lock of lock_failure
-- index:  failure_pkey
update engine.failure set requeued_as = %(requeued_as)s where job_id = %(job_id)s
