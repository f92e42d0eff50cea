-- Refreshes: one approved operation, fixed here as a manifest of contracts; a request says nothing but "now".
--
--   manifest (immutable, numbered) ◀── engine.job (pins the number) ──▶ audit (one row a contract, for ever)
--   switch: one row, off until an operator names the package to go back to
--
-- A contract copies a source into a table of another database. The fence of that table stands there, beside it
-- (leaseway.leaseway_fence), and is changed in the transaction that changes the table.
-- The functions may add to manifest and audit; they may neither change nor delete there.

create schema refresh;

create table refresh.manifest (
    version       int         not null,
    body          jsonb       not null,            -- with the revision of each source
    sha256        text        not null,            -- of the canonical JSON
    registered_at timestamptz not null,
    constraint manifest_pkey primary key (version),
    constraint manifest_versions_count_from_one check (version >= 1),
    constraint manifest_hash_is_a_sha256 check (sha256 ~ '^[0-9a-f]{64}$')
);

-- Numbers, names and verdicts; never a value of a record but the watermark, and never whoever asked.
create table refresh.audit (
    job_id      uuid        not null,
    contract    text        not null,
    manifest    int         not null references refresh.manifest,
    target      text        not null,              -- connection/schema.table
    outcome     text        not null,
    code        text,
    details     jsonb       not null default '{}', -- of codes.DETAILS
    read        bigint      not null default 0,
    inserted    bigint      not null default 0,
    updated     bigint      not null default 0,
    deleted     bigint      not null default 0,
    rejected    bigint      not null default 0,
    checks      jsonb       not null default '[]', -- [{check, passed, …}]
    watermark   timestamptz,
    fence       bigint      not null,
    started_at  timestamptz not null,
    finished_at timestamptz not null,
    constraint audit_pkey primary key (job_id, contract),
    constraint outcome_is_known check (outcome in ('refreshed', 'failed', 'skipped')),
    constraint only_refreshed_has_no_code check ((outcome = 'refreshed') = (code is null)),
    constraint only_refreshed_changed_rows check (outcome = 'refreshed' or (inserted, updated, deleted) = (0, 0, 0))
);
-- The last runs of a target, and how fresh it is.
create index audit_target on refresh.audit (target, finished_at);

-- Who switched it stands in access.act, beside the tokens the only place that names a principal.
create table refresh.switch (
    is_the_one boolean     not null default true,
    enabled    boolean     not null default false,
    rollback   text,                               -- SHA-256 of the package to go back to
    changed_at timestamptz,
    constraint switch_pkey primary key (is_the_one),
    constraint switch_is_one check (is_the_one),
    constraint enabled_has_a_way_back check (not enabled or rollback ~ '^[0-9a-f]{64}$')
);

grant usage on schema refresh to leaseway_app;
grant select, insert on refresh.manifest, refresh.audit to leaseway_app;
grant select, insert, update on refresh.switch to leaseway_app;
