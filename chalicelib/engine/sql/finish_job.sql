-- A job is done: its result stays, its payload goes, what it didn't keep is garbage, the follow-up is accepted.
-- fence:  claim_id, under FOR UPDATE; a cancellation that comes now has lost
-- index:  job_pkey
with held as materialized (
    select job as past, id, claim_id, engine.clock() as now
      from engine.job as job
     where id = %(job_id)s
       and claim_id = %(claim_id)s
       and locked_until > engine.clock()
       for update
)
, job as (
    update engine.job as job
       set state           = %(done)s,
           finished_at     = now,
           request         = null,
           checkpoint      = null,
           follow_up       = null,
           run_at          = null,
           locked_until    = null,
           deadline_at     = null,
           lease_owner     = null,
           waiting_for     = null,
           waiting_since   = null,
           waiting_details = null,
           result          = job.result || %(result)s,
           version         = %(version)s
      from held
     where job.id = held.id
    returning job.id, job.state, job.claim_id, job.attempts, held.past, now
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts)
    select id, now, 'finished', state, claim_id, attempts from job
)
select id, engine.ended(past, %(keep)s, %(wakeup_lost)s) as follow_up from job
