-- Datasets, their definitions, sources and versions; the tokens that may change them.
--
--   connection ◀── source (immutable revisions) ◀── named by ── definition (immutable revisions) ──▶ dataset
--                                                                                                     │
--   engine.job (the publication, kept for ever) ◀── version (immutable, except when it is withdrawn) ─┘
--
-- The dataset's row is the lock under which its entry in the catalogue is changed (docs/invariants.md, 13); it is always
-- taken before the job's row. The documents of a version are what the triple store holds of it, kept here: PostgreSQL is
-- the truth, the triple store is rebuilt from it.
-- The DSN of a connection stands in no row: `secret` is the name under which the function's environment holds it.

create schema dataset;

create table dataset.dataset (
    id              text        not null,
    last_version    int         not null default 0,
    current_version int,
    created_at      timestamptz not null default clock_timestamp(),
    constraint dataset_pkey primary key (id),
    constraint dataset_id_is_a_name check (id ~ '^[a-z0-9][a-z0-9-]{0,62}$'),
    constraint current_version_was_given check (current_version between 1 and last_version)
);

create table dataset.definition (
    dataset_id text        not null references dataset.dataset,
    revision   int         not null,
    body       jsonb       not null,
    etag       text        not null,
    created_at timestamptz not null default clock_timestamp(),
    constraint definition_pkey primary key (dataset_id, revision),
    constraint definition_revisions_count_from_one check (revision >= 1)
);

create table dataset.connection (
    name       text        not null,
    secret     text        not null,
    created_at timestamptz not null default clock_timestamp(),
    constraint connection_pkey primary key (name),
    constraint connection_name_is_a_name check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    constraint secret_is_the_name_of_one check (secret ~ '^LEASEWAY_SECRET_[A-Z0-9_]+$')
);

create table dataset.source (
    name       text        not null,
    revision   int         not null,
    connection text        not null references dataset.connection,
    relation   text,
    query      text,
    created_at timestamptz not null default clock_timestamp(),
    constraint source_pkey primary key (name, revision),
    constraint source_name_is_a_name check (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    constraint source_is_a_relation_or_a_query check (num_nonnulls(relation, query) = 1)
);

create table dataset.version (
    dataset_id          text        not null references dataset.dataset,
    number              int         not null,
    job_id              uuid        not null,
    fence               bigint      not null,
    definition_revision int         not null,
    source_name         text        not null,
    source_revision     int         not null,
    issued_at           timestamptz not null,
    records             bigint      not null,
    files               jsonb       not null,
    documents           jsonb       not null,
    report              jsonb       not null,
    triples             int         not null,
    withdrawn_at        timestamptz,
    constraint version_pkey primary key (dataset_id, number),
    constraint version_is_made_by_one_job unique (job_id),
    constraint version_numbers_count_from_one check (number >= 1),
    constraint version_has_a_definition foreign key (dataset_id, definition_revision) references dataset.definition,
    constraint version_has_a_source foreign key (source_name, source_revision) references dataset.source (name, revision)
);

-- The built-in data service: which export a key stands for, so that asking twice finds the same one.
create table dataset.export (
    key        uuid        not null,
    job_id     uuid        not null,
    fence      bigint      not null,
    created_at timestamptz not null default clock_timestamp(),
    constraint export_pkey primary key (key)
);

create schema access;

create table access.token (
    id         uuid        not null default uuidv7(),
    principal  text        not null,
    role       text        not null,
    datasets   text        not null default '*',
    hash       bytea       not null,
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    revoked_at timestamptz,
    constraint token_pkey primary key (id),
    constraint token_hash_is_unique unique (hash),
    constraint token_role_is_known check (role in ('reader', 'publisher', 'operator'))
);

-- What operators did: the one place beside access.token that names a principal.
create table access.act (
    at        timestamptz not null default clock_timestamp(),
    principal text        not null,
    act       text        not null,
    job_id    uuid,
    target    text
);
create index act_at on access.act (at);

grant usage on schema dataset, access to leaseway_app;
grant select, insert, update, delete on all tables in schema dataset, access to leaseway_app;
