-- What is taken back: versions (by a withdrawal) and datasets (once their versions are). And the keys that callers send
-- with a request, so that the same request sent twice is one.

-- Whoever withdrew it; the files may still be there while that job is unfinished, but nobody gets an address of them.
alter table dataset.version
    add column withdrawn_by uuid,
    add constraint withdrawn_by_whom_and_when check (withdrawn_by is null or withdrawn_at is not null);

-- A deleted dataset's row stays: its id and its numbers are never given again, and its versions' records still answer.
alter table dataset.dataset
    add column deleted_at timestamptz,
    add constraint deleted_has_no_current_version check (deleted_at is null or current_version is null);

-- What was asked for with an Idempotency-Key, and the job that came of it. Hashes are keyed, so that a copy of this table
-- tells nobody's name, key or payload. The row is made before its job, and locks: who asks the same meanwhile waits for
-- the first one's commit, and finds its job.
create table engine.idempotency (
    principal  bytea       not null,
    route      text        not null,            -- method and path
    key        bytea       not null,
    body       bytea       not null,            -- of the query and the body
    job_id     uuid,                            -- null only inside the transaction that accepts
    expires_at timestamptz not null,
    constraint idempotency_pkey primary key (principal, route, key)
);
create index idempotency_expires_at on engine.idempotency (expires_at);
grant select, insert, update, delete on engine.idempotency to leaseway_app;
