-- Retention: keys of requests whose time is over.
-- fence:  FOR UPDATE SKIP LOCKED
-- index:  idempotency_expires_at
-- By ctid, which the lock keeps where it is: joined by its three columns the whole table was read for each thousand.
with old as materialized (
    select ctid
      from engine.idempotency
     where expires_at <= (select engine.clock())
     order by expires_at
     limit 1000
       for update
      skip locked
)
delete from engine.idempotency
 where ctid = any (array(select ctid from old))
returning job_id
