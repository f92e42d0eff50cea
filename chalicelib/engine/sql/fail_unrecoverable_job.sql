-- An overdue job that recovery can't handle fails by the plainest statement there is, so that it blocks nobody.
-- fence:  FOR UPDATE SKIP LOCKED, and still overdue
-- index:  job_pkey
with doomed as materialized (
    select id
      from engine.job
     where id = %(job_id)s
       and locked_until <= engine.clock()
       for update
      skip locked
)
, ended as (
    delete from engine.job as job
     using doomed
     where job.id = doomed.id
    returning job.*, engine.clock() as now
)
, failure as (
    insert into engine.failure (job_id, pipeline, conflict_key, subject, schedule, state, code, details
                              , attempts, accepted_at, started_at, failed_at)
    select id, pipeline, conflict_key, subject, schedule, state, 'unrecoverable', jsonb_build_object('step', state)
         , attempts, accepted_at, started_at, now
      from ended
        on conflict (job_id) do nothing
)
, garbage as (
    update engine.ledger
       set status = 'garbage', kept_by = null, next_try_at = now
      from ended
     where ledger.job_id = ended.id
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts, details)
    select id, now, 'failed', state, claim_id, attempts, '{"code": "unrecoverable"}' from ended
)
select id from ended
