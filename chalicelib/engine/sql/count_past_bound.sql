-- How many jobs that no pause holds are past their act-by by more than a recovery period and a transaction's time-out.
-- fence:  none, it only reads
-- index:  job_locked_until
select count(*) as number
  from engine.job as job
 where finished_at is null
   and locked_until < (select engine.clock()) - interval '2 minutes'
   and (claim_id is not null or not exists (select from engine.pause where pipeline in (job.pipeline, '*')))
