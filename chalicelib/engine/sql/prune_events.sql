-- Retention: the history of what happened long ago.
-- fence:  FOR UPDATE SKIP LOCKED
-- index:  job_event_pkey
-- Ids are given in the order of time, but for a transaction's length: an index on the time would be one more to write.
with oldest as materialized (
    select id, at from engine.job_event order by id limit 1000 for update skip locked
)
delete from engine.job_event
 using oldest
 where job_event.id = oldest.id
   and oldest.at < (select engine.clock()) - %(retention)s
returning oldest.id
