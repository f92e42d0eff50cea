-- Retention: finished rows that are no version's record.
-- fence:  FOR UPDATE SKIP LOCKED
-- index:  job_finished_at
with old as materialized (
    select id
      from engine.job
     where finished_at < (select engine.clock()) - %(retention)s
       and finished_at is not null
       and version is null
     order by finished_at
     limit 1000
       for update
      skip locked
)
delete from engine.job using old where job.id = old.id returning old.id
