-- Retention: keys of requests whose time is over.
-- fence:  FOR UPDATE SKIP LOCKED
-- index:  idempotency_expires_at
with old as materialized (
    select principal, route, key
      from engine.idempotency
     where expires_at <= (select engine.clock())
     order by expires_at
     limit 1000
       for update
      skip locked
)
delete from engine.idempotency as known
 using old
 where (known.principal, known.route, known.key) = (old.principal, old.route, old.key)
returning known.job_id
