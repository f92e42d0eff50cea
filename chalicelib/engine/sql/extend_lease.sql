-- Heartbeat: extend the lease, report progress, hear of a cancellation.
-- fence:  claim_id, in this statement; changes no key, so it passes beside the owner's own FOR KEY SHARE
-- index:  job_pkey
update engine.job
   set locked_until = least(engine.clock() + %(lease)s, deadline_at),
       records      = coalesce(%(records)s, records),
       bytes        = coalesce(%(bytes)s, bytes),
       total        = coalesce(%(total)s, total)
 where id = %(job_id)s
   and claim_id = %(claim_id)s
   and locked_until > engine.clock()
returning extract(epoch from locked_until - engine.clock())::float8 as seconds
        , cancel_requested_at is not null as cancelled
