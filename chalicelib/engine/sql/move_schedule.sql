-- A schedule's slot is used, by a job or because its subject is busy; the next one lies in the future.
-- fence:  under the lock of pick_due_schedule
-- index:  schedule_pkey
update engine.schedule
   set last_due_at  = next_due_at,
       next_due_at  = %(next_due_at)s,
       last_job     = coalesce(%(job_id)s, last_job),
       last_refusal = %(refusal)s
 where key = %(key)s
