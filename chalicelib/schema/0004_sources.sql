-- Connections with limits of their own, and files as sources.
--
-- At most max_jobs exports use a connection at a time. Each of them has a row in connection_slot, which counts only while
-- its job still holds the claim that took it: one whose worker died frees itself when the lease ends. The connection's row
-- is the lock under which they are counted.
--
-- A file is a source as a table is: its revision names the object that holds it, its SHA-256, the dialect it is read by and
-- its columns. To be exported it becomes a table of the schema staging first, one for each job and claim, noted in the
-- ledger before it is made.

alter table dataset.connection
    add max_jobs          int not null default 1,
    add statement_timeout int,                     -- seconds; null: what the login's own setting says
    add constraint max_jobs_are_few check (max_jobs between 1 and 100),
    add constraint statement_timeout_is_at_most_a_day check (statement_timeout between 1 and 86400);

create table dataset.connection_slot (
    connection text        not null references dataset.connection,
    job_id     uuid        not null,
    claim_id   bigint      not null,
    taken_at   timestamptz not null,
    constraint connection_slot_pkey primary key (connection, job_id)
);

alter table dataset.source
    alter connection drop not null,
    add file jsonb,                                -- {key, bytes, sha256, records, dialect, columns}
    drop constraint source_is_a_relation_or_a_query,
    add constraint source_is_a_relation_a_query_or_a_file check (num_nonnulls(relation, query, file) = 1),
    add constraint source_has_a_connection_unless_it_is_a_file check ((connection is null) = (file is not null)),
    add constraint file_says_what_it_is check (
        file ?& array['key', 'bytes', 'sha256', 'records', 'dialect', 'columns']);

create schema staging;

grant usage, create on schema staging to leaseway_app;
grant select, insert, update, delete on dataset.connection_slot to leaseway_app;
