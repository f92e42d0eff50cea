-- Cancel a job: an unowned one fails at once, an owned one is marked, for its owner's next heartbeat.
-- fence:  the unowned row under FOR UPDATE; the mark changes no key, so it waits for no transaction of the owner.
--         No row when the job changed hands meanwhile: ask again
-- index:  job_pkey
with doomed as materialized (
    select id
      from engine.job
     where id = %(job_id)s
       and claim_id is null
       for update
)
, ended as (
    delete from engine.job as job
     using doomed
     where job.id = doomed.id
    returning job.*, job as past, engine.clock() as now
)
, failure as (
    insert into engine.failure (job_id, pipeline, conflict_key, subject, schedule, state, code, details
                              , attempts, accepted_at, started_at, failed_at)
    select id, pipeline, conflict_key, subject, schedule, state, 'cancelled', jsonb_build_object('step', state)
         , attempts, accepted_at, started_at, now
      from ended
)
, marked as (
    update engine.job
       set cancel_requested_at = coalesce(cancel_requested_at, engine.clock())
     where id = %(job_id)s
       and lease_owner is not null
    returning id, cancel_requested_at, state, claim_id, attempts
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts, details)
    select id, now, 'failed', state, claim_id, attempts, '{"code": "cancelled"}'::jsonb from ended
    union all
    select id, engine.clock(), 'cancel_requested', state, claim_id, attempts, '{}' from marked
)
select 'cancelled' as outcome, engine.ended(past, null, %(wakeup_lost)s) as follow_up from ended
union all
select 'requested', null from marked
