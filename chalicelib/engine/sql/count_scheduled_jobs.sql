-- How many scheduled jobs are active, but for those that a pause holds: for days they would take the places of others.
-- fence:  under the lock of lock_catch_up
-- index:  job_scheduled
select count(*) as active
  from engine.job
 where schedule is not null
   and finished_at is null
   and (claim_id is not null or not %(paused)s && array[pipeline, '*'])
