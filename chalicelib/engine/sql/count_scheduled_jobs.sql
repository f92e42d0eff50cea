-- How many scheduled jobs are active.
-- fence:  under the lock of lock_catch_up
-- index:  job_scheduled
select count(*) as active from engine.job where schedule is not null and finished_at is null
