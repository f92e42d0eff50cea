-- Recover one overdue job: a lost worker's goes back to REQUESTED, a lost wake-up is sent again, the interval doubling up
-- to an hour; cancelled, past its deadline or out of attempts it fails. One that is held back by an older one of its order
-- key gets its deadline anew; where that one is gone without a word, the next one is released.
-- fence:  FOR UPDATE SKIP LOCKED: whoever holds the row is handling it; under the lock the state can't change
-- index:  job_order_key, job_pkey
with overdue as materialized (
    select id
         , claim_id
         , order_key
         , held_back
         , held_back and exists (select
                                   from engine.job as head
                                  where head.order_key = job.order_key
                                    and head.finished_at is null
                                    and not head.held_back) as waits
         , engine.clock() as now
         , (%(backoff)s::interval[])[attempts] as pause
         , case when cancel_requested_at is not null              then 'cancelled'
                when deadline_at <= engine.clock() and not held_back then 'deadline_exceeded'
                when claim_id is not null and attempts >= 3       then 'attempts_exhausted' end as code
      from engine.job as job
     where id = %(job_id)s
       and locked_until <= engine.clock()
       and (claim_id is not null or not exists (select from engine.pause where pipeline in (job.pipeline, '*')))
       for update of job
      skip locked
)
, ended as (
    delete from engine.job as job
     using overdue
     where job.id = overdue.id
       and overdue.code is not null
    returning job.*, job as past, overdue.code, now
)
, failure as (
    insert into engine.failure (job_id, pipeline, conflict_key, subject, schedule, state, code, details
                              , attempts, accepted_at, started_at, failed_at)
    select id, pipeline, conflict_key, subject, schedule, state, code
         , jsonb_strip_nulls(jsonb_build_object('step', state, 'waiting_for', waiting_for, 'since', waiting_since))
           || coalesce(waiting_details, '{}')
         , attempts, accepted_at, started_at, now
      from ended
)
, lost_worker as (
    update engine.job as job
       set state        = 'REQUESTED',
           result       = '{}',
           claim_id     = null,
           lease_owner  = null,
           wake_ups     = 0,
           outages      = 0,
           run_at       = now + pause,
           locked_until = least(now + pause + %(wakeup_lost)s, deadline_at)
      from overdue
     where job.id = overdue.id
       and overdue.code is null
       and overdue.claim_id is not null
    returning job.id, job.queue, job.run_at, job.state, job.attempts, overdue.claim_id, now, 'worker_lost' as kind
)
, lost_wake_up as (
    update engine.job as job
       set wake_ups     = wake_ups + 1,
           locked_until = least(now + least(%(wakeup_lost)s * (2 ^ least(wake_ups + 1, 10))
                                          , greatest(%(wakeup_lost)s, interval '1 hour')), deadline_at)
      from overdue
     where job.id = overdue.id
       and overdue.code is null
       and overdue.claim_id is null
       and not overdue.held_back
    returning job.id, job.queue, job.run_at, job.state, job.attempts, overdue.claim_id, now, 'wake_up_lost' as kind
)
, held_back as (
    update engine.job as job
       set locked_until = now + least(%(wakeup_lost)s, queue_budget + run_budget),
           deadline_at  = now + queue_budget + run_budget
      from overdue
     where job.id = overdue.id
       and overdue.code is null
       and overdue.held_back
    returning job.id, job.queue, job.run_at, job.state, job.attempts, overdue.claim_id, now, 'held_back' as kind
)
, recovered as (
    select * from lost_worker
    union all
    select * from lost_wake_up
)
, owed as (
    insert into engine.outbox (job_id, queue, run_at, send_at)
    select id, queue, run_at, greatest(now, run_at - interval '900 seconds') from recovered
        on conflict (job_id) do update
       set run_at = excluded.run_at, send_at = excluded.send_at, number = outbox.number + 1
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts, details)
    select id, now, 'failed', state, claim_id, attempts, jsonb_build_object('code', code) from ended
    union all
    select id, now, kind, state, claim_id, attempts, '{}' from recovered
    union all
    select id, now, kind, state, claim_id, attempts, '{}' from held_back
)
select kind, null::uuid as follow_up from recovered
union all
select kind, case when not waits then engine.release_next(order_key, %(wakeup_lost)s) end from overdue, held_back
union all
select code, engine.ended(past, null, %(wakeup_lost)s) from ended
