-- Give the lease back and come again later, in the same state; no attempt is spent.
-- fence:  claim_id, under FOR UPDATE; a cancelled job doesn't wait
-- index:  job_pkey, outbox_pkey
with held as materialized (
    select id, claim_id, engine.clock() as now
      from engine.job
     where id = %(job_id)s
       and claim_id = %(claim_id)s
       and locked_until > engine.clock()
       and cancel_requested_at is null
       for update
)
, job as (
    update engine.job as job
       set claim_id        = null,
           lease_owner     = null,
           wake_ups        = 0,
           outages         = case when %(outage)s then outages + 1 else 0 end,
           waiting_for     = %(waiting_for)s,
           waiting_since   = case when %(waiting_for)s::text is not null
                                  then case when job.waiting_for = %(waiting_for)s then waiting_since else now end end,
           waiting_details = %(details)s,
           run_at          = now + %(pause)s,
           locked_until    = least(now + %(pause)s + %(wakeup_lost)s, deadline_at)
      from held
     where job.id = held.id
    returning job.*, held.claim_id as by_claim, now
)
, owed as (
    insert into engine.outbox (job_id, queue, run_at, send_at)
    select id, queue, run_at, greatest(now, run_at - interval '900 seconds') from job
        on conflict (job_id) do update
       set run_at = excluded.run_at, send_at = excluded.send_at, number = outbox.number + 1
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts, details)
    select id, now, 'waiting', state, by_claim, attempts
         , jsonb_strip_nulls(jsonb_build_object('waiting_for', waiting_for)) || coalesce(waiting_details, '{}')
      from job
)
select * from job
