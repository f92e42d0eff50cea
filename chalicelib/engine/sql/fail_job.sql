-- A job fails for good, by its owner: failure, ledger to garbage, follow-up; the row goes, and the payload with it.
-- fence:  claim_id, under FOR UPDATE
-- index:  job_pkey
with doomed as materialized (
    select id
      from engine.job
     where id = %(job_id)s
       and claim_id = %(claim_id)s
       and locked_until > engine.clock()
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
    select id, pipeline, conflict_key, subject, schedule, state, %(code)s
         , jsonb_build_object('step', state) || %(details)s
         , attempts, accepted_at, started_at, now
      from ended
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts, details)
    select id, now, 'failed', state, claim_id, attempts, jsonb_build_object('code', %(code)s::text) from ended
)
select id, engine.ended(past, null, %(wakeup_lost)s) as follow_up from ended
