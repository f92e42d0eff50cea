-- Claim the oldest due job of a queue; the same ask again gets the same answer.
-- fence:  takes a new claim_id (the sequence only grows); an attempt is spent on leaving REQUESTED, so a crash counts
-- index:  job_lease_owner, job_due
-- Estimates decide whether the planner walks job_due in its order or sorts every due row (measured: 8,148 pages instead
-- of 9 for 4,000 due jobs): hence the pauses as an array, not as an anti-join, and the pipelines as a list.
with clock as materialized (
    select engine.clock() as now
)
, paused as materialized (
    select coalesce(array_agg(pipeline), '{}') as pipelines from engine.pause
)
-- Its lease may have ended: an ask holds one claim all the same (job_lease_owner).
, asked as materialized (
    select id, deadline_at, locked_until
      from engine.job
     where lease_owner = %(ask)s
       for update
)
, oldest as materialized (
    select id
         , case when started_at is null then (select now from clock) + run_budget else deadline_at end as deadline_at
      from engine.job as job
     where queue = %(queue)s
       and finished_at is null
       and claim_id is null
       and not held_back
       and run_at <= (select now from clock)
       and deadline_at > (select now from clock)
       and (state <> 'REQUESTED' or attempts < 3)
       and pipeline = any (%(pipelines)s)
       and not (select pipelines from paused) && array[pipeline, '*']
       and not exists (select from asked)
     order by run_at
     limit 1
       for update of job
      skip locked
)
, due as materialized (
    select id, deadline_at, false as fresh from asked where locked_until > (select now from clock)
    union all
    select id, deadline_at, true from oldest
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
      from due, clock
     where job.id = due.id
    returning job.*, due.fresh, now
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts)
    select id, now, 'claimed', state, claim_id, attempts from job where fresh
)
select *, extract(epoch from locked_until - now)::float8 as seconds from job
