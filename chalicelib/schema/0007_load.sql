-- Loads: rows that their owners push into a dataset's store, a table of the schema `store` that is named as the dataset.
--
--   definition (columns, key) ──▶ store."DATASET" ◀── load (the job) ◀── payload: the job's `request`, or an upload
--                                     ▲                     │
--                source with `store` ─┘                     └──▶ dataset.load: what it did, in the transaction that did it
--
-- A store is made by the first load and changed by the next one when the definition has gained columns; its rows and
-- the record of the load that wrote them are committed together, or not at all.
--
-- An upload is an object that a caller puts into object storage before the load that takes it. The ledger has it from
-- the moment it may exist: as garbage of the day after, until a job takes it over.

create schema store;
grant usage, create on schema store to leaseway_app;

-- What a load did. It goes with its job's row.
create table dataset.load (
    job_id     uuid   not null references engine.job on delete cascade,
    dataset_id text   not null references dataset.dataset,
    mode       text   not null,
    rows       bigint not null,
    inserted   bigint not null,
    updated    bigint not null,
    deleted    bigint not null,
    constraint load_is_done_once primary key (job_id),
    constraint load_mode_is_known check (mode in ('upsert', 'replace')),
    constraint load_counts_its_rows check (rows >= inserted + updated and least(inserted, updated, deleted) >= 0),
    constraint upsert_deletes_nothing check (mode = 'replace' or deleted = 0)
);

create table dataset.upload (
    id         uuid        not null,
    dataset_id text        not null references dataset.dataset,
    owner      bytea       not null,                   -- keyed hash
    bytes      bigint      not null,
    expires_at timestamptz not null,                   -- until when a load may take it
    job_id     uuid,                                   -- the load that took it
    constraint upload_pkey primary key (id),
    constraint upload_holds_something check (bytes > 0)
);

alter table dataset.source
    add store text,                                    -- a dataset's id; no foreign key, for it may come later
    drop constraint source_is_a_relation_a_query_or_a_file,
    drop constraint source_has_a_connection_unless_it_is_a_file,
    add constraint source_is_one_thing check (num_nonnulls(relation, query, file, store) = 1),
    add constraint source_has_a_connection_unless_it_is_here check ((connection is null) = (num_nonnulls(file, store) = 1)),
    add constraint store_is_a_datasets check (store ~ '^[a-z0-9][a-z0-9-]{0,62}$');

grant select, insert, update, delete on dataset.load, dataset.upload to leaseway_app;
