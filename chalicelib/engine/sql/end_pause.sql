-- End a pause and add its length to the bounds of the jobs it held, from when they came; wake them. Where another pause
-- still stands over a job, only what that one doesn't count: the sum is the time in which any of them stood.
-- fence:  the pause's row under FOR UPDATE; while it is there, nobody claims the jobs
-- index:  job_locked_until
with ended as materialized (
    select pipeline, since, engine.clock() as now
      from engine.pause
     where pipeline = %(pipeline)s
       and (%(early)s or until <= engine.clock())
       for update
)
, gone as (
    delete from engine.pause using ended where pause.pipeline = ended.pipeline
    returning pause.pipeline
)
, held as materialized (
    select job.id
         , now
         , greatest(interval '0', least(now, (select min(since)
                                                from engine.pause as other
                                               where other.pipeline in (job.pipeline, '*')
                                                 and other.pipeline <> ended.pipeline))
                                  - greatest(ended.since, job.accepted_at)) as length
      from ended
      join engine.job as job on ended.pipeline in (job.pipeline, '*')
     where job.finished_at is null
       and job.claim_id is null
     order by job.order_number, job.id
       for update of job
)
, job as (
    update engine.job as job
       set locked_until = job.locked_until + length,
           deadline_at  = job.deadline_at + length
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
