-- Remove the record of a failure; the key under which its job was asked for keeps the answer as long as it lasts.
-- fence:  the row's lock
-- index:  failure_pkey, idempotency_job_id
with purged as (
    delete from engine.failure where job_id = %(job_id)s returning *
)
, remembered as (
    update engine.idempotency
       set failure = to_jsonb(purged)
      from purged
     where idempotency.job_id = purged.job_id
)
select job_id from purged
