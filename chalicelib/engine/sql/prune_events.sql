-- Retention: the history of what happened long ago.
-- fence:  FOR UPDATE SKIP LOCKED
-- index:  job_event_at
with old as materialized (
    select id from engine.job_event where at < (select engine.clock()) - %(retention)s order by at limit 1000
       for update skip locked
)
delete from engine.job_event using old where job_event.id = old.id returning old.id
