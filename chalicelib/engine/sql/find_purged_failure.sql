-- The failure that came of a request and was purged since; the release before left an earlier job's there.
-- fence:  none, it only reads
-- index:  idempotency_job_id
select remembered.*
  from engine.idempotency
     , jsonb_populate_record(null::engine.failure, failure) as remembered
 where idempotency.job_id = %(job_id)s
   and failure ->> 'job_id' = idempotency.job_id::text
