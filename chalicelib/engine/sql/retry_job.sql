-- An attempt failed and others are left: back to REQUESTED, with a pause that grows with the attempts.
-- fence:  claim_id, under FOR UPDATE; no row when the attempts are spent or the job is cancelled
-- index:  job_pkey, outbox_pkey
with held as materialized (
    select id, claim_id, state, engine.clock() as now, (%(backoff)s::interval[])[attempts] as pause
      from engine.job
     where id = %(job_id)s
       and claim_id = %(claim_id)s
       and locked_until > engine.clock()
       and cancel_requested_at is null
       and attempts < 3
       for update
)
, job as (
    update engine.job as job
       set state        = 'REQUESTED',
           result       = '{}',
           claim_id     = null,
           lease_owner  = null,
           wake_ups     = 0,
           outages      = 0,
           run_at       = now + pause,
           locked_until = least(now + pause + %(wakeup_lost)s, deadline_at)
      from held
     where job.id = held.id
    returning job.*, held.claim_id as by_claim, held.state as left_state, now
)
, owed as (
    insert into engine.outbox (job_id, queue, run_at, send_at)
    select id, queue, run_at, greatest(now, run_at - interval '900 seconds') from job
        on conflict (job_id) do update
       set run_at = excluded.run_at, send_at = excluded.send_at, number = outbox.number + 1
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts, details)
    select id, now, 'retried', left_state, by_claim, attempts, jsonb_build_object('code', %(code)s::text) || %(details)s
      from job
)
select * from job
