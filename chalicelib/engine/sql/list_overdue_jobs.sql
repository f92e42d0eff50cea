-- The jobs whose act-by has passed, longest first, without those that a pause holds and those passed over in this run.
-- fence:  none, it only reads; recover_job checks again under the lock
-- index:  job_locked_until
select id
  from engine.job as job
 where finished_at is null
   and locked_until <= (select engine.clock())
   and id <> all (%(passed)s::uuid[])
   and (claim_id is not null or not exists (select from engine.pause where pipeline in (job.pipeline, '*')))
 order by locked_until
 limit 500
