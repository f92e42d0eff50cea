-- What a request got is its answer as long as its key lasts, also when an operator purges the failure that came of it.

alter table engine.idempotency add failure jsonb;        -- the record, once it is purged
create index idempotency_job_id on engine.idempotency (job_id);
