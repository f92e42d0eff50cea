-- End a pause with its parts', add to the bounds of the jobs they held the time for which they were due while any pause
-- stood over them, and wake them. Where another one still stands, that one's end adds the rest, from pauses_counted_until on.
-- fence:  the pauses' rows under FOR UPDATE; while one is there, nobody claims the jobs. Of two that end at once one waits for a
--         job's row, and then reads there how far the other came
-- index:  job_locked_until
with ended as materialized (
    select pipeline, engine.clock() as now
      from engine.pause
     where pipeline = any (%(pipelines)s)
       and (%(early)s or until <= engine.clock())
     order by pipeline
       for update
)
, gone as (
    delete from engine.pause using ended where pause.pipeline = ended.pipeline
    returning pause.pipeline
)
, held as materialized (
    select job.id
         , now
         , greatest(interval '0', now - greatest(job.run_at, job.pauses_counted_until, pauses.since)) as length
      from ended
      join engine.job as job on ended.pipeline in (job.pipeline, '*')
     cross join lateral (select min(since) as since from engine.pause where pipeline in (job.pipeline, '*')) as pauses
     where job.finished_at is null
       and job.claim_id is null
     order by job.order_number, job.id
       for update of job
)
, job as (
    update engine.job as job
       set locked_until         = job.locked_until + length,
           deadline_at          = job.deadline_at + length,
           pauses_counted_until = now
      from held
     where job.id = held.id
       and job.finished_at is null
    returning job.id, job.queue, job.run_at, job.state, job.attempts, job.held_back, now
)
, owed as (
    insert into engine.outbox (job_id, queue, run_at, send_at)
    select id, queue, run_at, greatest(now, run_at - interval '900 seconds') from job where not held_back
        on conflict (job_id) do update
       set run_at = excluded.run_at, send_at = excluded.send_at, number = outbox.number + 1
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, attempts)
    select id, now, 'pause_ended', state, attempts from job
)
select pipeline from gone
