-- Accept a job, and the wake-up it is owed; no row while an unfinished job holds its conflict key. Behind an unfinished
-- one of its order key it is held back, and owed nothing yet.
-- fence:  the unique index picks one winner of a race; its predicate is literal, else it would not be the arbiter; its place in the
--         line is taken under the lock of its order key (engine.take_place)
-- index:  job_order_number, job_conflict_key
with clock as materialized (
    select engine.clock() as now
)
, job as (
    insert into engine.job (pipeline, queue, conflict_key, order_key, order_number, held_back, waiting_for, waiting_since
                          , subject, request, schedule, queue_budget, run_budget
                          , accepted_at, run_at, locked_until, deadline_at)
    select %(pipeline)s, %(queue)s, %(conflict_key)s, %(order_key)s, place.number, coalesce(place.held_back, false)
         , case when place.held_back then 'earlier_job' end, case when place.held_back then now end
         , %(subject)s, %(request)s, %(schedule)s, %(queue_budget)s, %(run_budget)s
         , now, now
         , now + least(%(wakeup_lost)s, %(queue_budget)s + %(run_budget)s)
         , now + %(queue_budget)s + %(run_budget)s
      from clock, engine.take_place(%(order_key)s) as place
        on conflict (conflict_key) where finished_at is null do nothing
    returning *
)
, owed as (
    insert into engine.outbox (job_id, queue, run_at, send_at)
    select id, queue, run_at, run_at from job where not held_back
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, attempts)
    select id, accepted_at, 'accepted', state, attempts from job
)
select * from job
