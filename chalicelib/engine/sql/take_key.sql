-- Take the key of a request, before its job is accepted: who sends the same meanwhile waits here for the commit, and finds
-- the job. No job_id means that the caller is the first, or the first after the key's time.
-- fence:  the row's lock, the first one of its transaction
-- index:  idempotency_pkey
insert into engine.idempotency as known (principal, route, key, body, expires_at)
values (%(principal)s, %(route)s, %(key)s, %(body)s, engine.clock() + %(lasts)s)
    on conflict (principal, route, key) do update
   set body       = case when known.expires_at > excluded.expires_at - %(lasts)s then known.body else excluded.body end,
       job_id     = case when known.expires_at > excluded.expires_at - %(lasts)s then known.job_id end,
       failure    = case when known.expires_at > excluded.expires_at - %(lasts)s then known.failure end,
       expires_at = case when known.expires_at > excluded.expires_at - %(lasts)s then known.expires_at
                         else excluded.expires_at end
returning body, job_id
