-- Accept a job, and the wake-up it is owed; no row while an unfinished job holds its conflict key.
-- fence:  the unique index picks one winner of a race; its predicate is literal, else it would not be the arbiter
-- index:  job_conflict_key
with clock as materialized (
    select engine.clock() as now
)
, job as (
    insert into engine.job (pipeline, queue, conflict_key, subject, request, schedule, queue_budget, run_budget
                          , accepted_at, run_at, locked_until, deadline_at)
    select %(pipeline)s, %(queue)s, %(conflict_key)s, %(subject)s, %(request)s, %(schedule)s
         , %(queue_budget)s, %(run_budget)s
         , now, now
         , now + least(%(wakeup_lost)s, %(queue_budget)s + %(run_budget)s)
         , now + %(queue_budget)s + %(run_budget)s
      from clock
        on conflict (conflict_key) where finished_at is null do nothing
    returning *
)
, owed as (
    insert into engine.outbox (job_id, queue, run_at, send_at)
    select id, queue, run_at, run_at from job
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, attempts)
    select id, accepted_at, 'accepted', state, attempts from job
)
select * from job
