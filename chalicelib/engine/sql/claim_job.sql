-- Claim the job a wake-up names, if it is due and nobody owns it; the same ask again gets the same answer.
-- fence:  takes a new claim_id (the sequence only grows); an attempt is spent on leaving REQUESTED, so a crash counts
-- index:  job_pkey
with clock as materialized (
    select engine.clock() as now
)
, due as materialized (
    select id
         , claim_id is null as fresh
         , (select now from clock) as now
         , case when started_at is null then (select now from clock) + run_budget else deadline_at end as deadline_at
      from engine.job as job
     where id = %(job_id)s
       and queue = %(queue)s
       and (lease_owner = %(ask)s and locked_until > (select now from clock)
            or claim_id is null
               and not held_back
               and run_at <= (select now from clock)
               and deadline_at > (select now from clock)
               and (state <> 'REQUESTED' or attempts < 3)
               and pipeline = any (%(pipelines)s)
               and not exists (select from engine.pause where pipeline in (job.pipeline, '*')))
       for update of job
      skip locked
)
, job as (
    update engine.job as job
       set claim_id     = coalesce(job.claim_id, engine.next_claim()),
           lease_owner  = %(ask)s,
           started_at   = coalesce(job.started_at, now),
           deadline_at  = due.deadline_at,
           locked_until = least(now + %(lease)s, due.deadline_at),
           attempts     = job.attempts + (job.state = 'REQUESTED')::int,
           -- the last attempt starts without the checkpoint, which may be what kills it
           checkpoint   = case when job.state = 'REQUESTED' and job.attempts = 2 then null else job.checkpoint end,
           state        = case job.state when 'REQUESTED' then %(first_steps)s::jsonb ->> job.pipeline else job.state end
      from due
     where job.id = due.id
    returning job.*, due.fresh, now
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts)
    select id, now, 'claimed', state, claim_id, attempts from job where fresh
)
select *, extract(epoch from locked_until - now)::float8 as seconds from job
