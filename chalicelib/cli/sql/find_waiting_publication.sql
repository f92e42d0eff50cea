-- The publication that is in PERSIST_DATA and stands before a lock that this very session holds.
-- fence:  none: the demo only looks
-- index:  job_pkey
select id
     , claim_id
     , locked_until
  from engine.job
 where id = %(publication)s
   and state = 'PERSIST_DATA'
   and claim_id is not null
   and exists (select from pg_locks where not granted and pg_backend_pid() = any (pg_blocking_pids(pid)))
