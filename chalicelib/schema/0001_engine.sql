-- The engine: durable jobs. A job is always exactly one of three things: being worked on, recovered because its worker
-- died, or finished. It can't hang, and this page says why.
--
--   accept ──▶ job (REQUESTED) + outbox ──relay──▶ SQS ──▶ worker ──claim──▶ step ─▶ step ─▶ finished: the row stays
--                       ▲                                                     │              failed:   a row of `failure`
--                       └───── recovery, every minute: expired lease, ────────┘
--                              lost wake-up, passed deadline
--
-- An unfinished row has three times, and one index on the second finds every row that could hang:
--   run_at        not before: back-off, a wait, the moment it was handed over
--   locked_until  act by: the lease's end while somebody owns it, else the moment its wake-up counts as lost
--   deadline_at   the end of the patience; no lease goes past it
--
-- Who owns a job is said by the row alone. claim_id is the fence: it comes from a sequence, is never given twice and
-- only grows, so every write of a worker names it and a stale worker changes nothing. lease_owner is the random id of the
-- ask that got the claim: the same ask again gets the same claim, because the first reply may have been lost.
--
-- Locks. A worker that writes another table holds the job FOR KEY SHARE, so that its own heartbeat (which changes no key)
-- passes beside it; whoever takes a claim away locks FOR UPDATE or deletes, which conflicts. FOR SHARE would block the
-- heartbeat, and two sharers that go on to update deadlock (measured). Order everywhere: dataset, job, the rest.
--
-- The clock is engine.clock(), never now() (the start of the transaction: 3 s stale was measured) and never a worker's.
-- A predicate that should use an index writes (select engine.clock()): a bare volatile call is only a filter.
--
-- What happened to a job stands in job_event, written by the statement that did it. Its row for a claim also answers
-- a worker whose reply was lost: "did my write arrive?"
--
-- Everything a job writes outside (files, uploads, a graph) is noted in the ledger before it is made: `pending`, then
-- `kept` by the step that hands it on, or `garbage` once the job ends without it; cleanup removes garbage.
--
-- Constraints are named after the invariant they hold; chalicelib/engine/refusals.py turns some of them into answers.

create schema engine;

create function engine.clock() returns timestamptz
    language sql volatile
    return clock_timestamp();

create sequence engine.claim_id;

create function engine.next_claim() returns bigint
    language sql volatile
    return nextval('engine.claim_id');

create table engine.job (
    id                  uuid        not null default uuidv7(),
    pipeline            text        not null,
    queue               text        not null,
    conflict_key        text,
    subject             jsonb       not null,                  -- names and revisions only: it outlives the job
    request             jsonb,                                 -- the payload, erased at the end
    schedule            text,                                  -- which schedule started it
    state               text        not null default 'REQUESTED',
    attempts            int         not null default 0,        -- how often it left REQUESTED
    claim_id            bigint,                                -- a finished row keeps the winner's
    lease_owner         uuid,
    accepted_at         timestamptz not null,
    started_at          timestamptz,
    finished_at         timestamptz,
    run_at              timestamptz,
    locked_until        timestamptz,
    deadline_at         timestamptz,
    queue_budget        interval    not null,
    run_budget          interval    not null,
    wake_ups            int         not null default 0,        -- how often a lost wake-up was sent again
    outages             int         not null default 0,        -- how often in a row something outside was away
    waiting_for         text,
    waiting_since       timestamptz,
    waiting_details     jsonb,
    records             bigint      not null default 0,
    bytes               bigint      not null default 0,
    total               bigint,
    checkpoint          jsonb,                                 -- {step, shape, value}
    result              jsonb       not null default '{}',     -- what steps handed on
    version             int,
    follow_up           jsonb,                                 -- the subject of a trigger that came meanwhile
    cancel_requested_at timestamptz,
    constraint job_pkey primary key (id),
    -- Invariant 1
    constraint unfinished_has_its_times check (
        num_nulls(run_at, locked_until, deadline_at) = case when finished_at is null then 0 else 3 end),
    constraint act_by_is_not_after_the_deadline check (locked_until <= deadline_at),
    constraint claim_has_an_owner check (
        case when finished_at is null then (claim_id is null) = (lease_owner is null) else lease_owner is null end),
    constraint finished_keeps_its_fence check (finished_at is null or claim_id is not null),
    constraint attempts_are_capped check (attempts between 0 and 3),
    constraint requested_has_an_attempt_left check (state <> 'REQUESTED' or attempts < 3),
    constraint requested_is_unowned check (state <> 'REQUESTED' or claim_id is null),
    -- Invariant 8
    constraint finished_has_no_payload check (finished_at is null or request is null),
    constraint waiting_has_a_since check ((waiting_for is null) = (waiting_since is null)),
    constraint follow_up_has_a_conflict_key check (follow_up is null or conflict_key is not null),
    constraint queue_is_known check (queue in ('work', 'fetch'))
);

-- Invariant 2: one unfinished job per conflict key. The predicate is literal, so that ON CONFLICT finds this index.
create unique index job_conflict_key on engine.job (conflict_key) where finished_at is null;
-- Every row that could hang (invariant 1).
create index job_locked_until on engine.job (locked_until) where finished_at is null;
-- The oldest due job of a queue.
create index job_due on engine.job (queue, run_at) where claim_id is null and finished_at is null;
-- An ask holds one claim, and finds it again (invariant 5).
create unique index job_lease_owner on engine.job (lease_owner) where lease_owner is not null;
-- How many scheduled jobs are active.
create index job_scheduled on engine.job (schedule) where schedule is not null and finished_at is null;
-- What retention prunes; a version's record stays for ever.
create index job_finished_at on engine.job (finished_at) where finished_at is not null and version is null;

-- A wake-up that is owed: one row a job, deleted once SQS acknowledged it. The number is raised by each upsert and named
-- by the relay's delete, else a newer wake-up would go with the older.
create table engine.outbox (
    job_id  uuid        not null references engine.job on delete cascade,
    queue   text        not null,
    run_at  timestamptz not null,
    send_at timestamptz not null,            -- at most 900 s before run_at (SQS's longest delay); later while it is being sent
    number  int         not null default 1,
    constraint outbox_pkey primary key (job_id)
);
create index outbox_send_at on engine.outbox (send_at);

-- Jobs that failed, for good: a code, whitelisted details, the subject. Nothing private, so it stays until it is purged.
create table engine.failure (
    job_id       uuid        not null,
    pipeline     text        not null,
    conflict_key text,
    subject      jsonb       not null,
    schedule     text,
    state        text        not null,
    code         text        not null,
    details      jsonb       not null,
    attempts     int         not null,
    accepted_at  timestamptz not null,
    started_at   timestamptz,
    failed_at    timestamptz not null,
    requeued_as  uuid,
    constraint failure_pkey primary key (job_id),
    constraint failure_code_is_a_word check (code ~ '^[a-z][a-z0-9_]{2,40}$')
);
create index failure_conflict_key on engine.failure (conflict_key, job_id);

create table engine.job_event (
    id       bigint      not null generated always as identity,
    job_id   uuid        not null,
    at       timestamptz not null,
    kind     text        not null,
    state    text        not null,
    claim_id bigint,
    attempts int         not null,
    details  jsonb       not null default '{}',
    constraint job_event_pkey primary key (id)
);
create index job_event_job_id on engine.job_event (job_id, id);
create index job_event_at on engine.job_event (at);

-- Everything a job wrote outside. No foreign key: it outlives the job.
create table engine.ledger (
    id          bigint      not null generated always as identity,
    job_id      uuid        not null,
    claim_id    bigint      not null,        -- whoever noted it last
    kind        text        not null,
    locator     jsonb       not null,
    status      text        not null default 'pending',
    kept_by     text,                        -- the step that keeps it; run again, it may keep others
    noted_at    timestamptz not null,
    next_try_at timestamptz,
    removed_at  timestamptz,                 -- once removed, it is removed again: a stale worker may still have been writing
    tries       int         not null default 0,
    constraint ledger_pkey primary key (id),
    constraint ledger_notes_a_thing_once unique (job_id, kind, locator),
    constraint ledger_status_is_known check (status in ('pending', 'kept', 'garbage')),
    constraint kept_is_kept_by_a_step check ((status = 'kept') = (kept_by is not null)),
    constraint garbage_is_tried check ((status = 'garbage') = (next_try_at is not null))
);
create index ledger_garbage on engine.ledger (next_try_at) where status = 'garbage';

-- A pause stands while its row does; its end shifts the bounds of the jobs it held.
create table engine.pause (
    pipeline text        not null,           -- '*' is all
    since    timestamptz not null,
    until    timestamptz not null,
    constraint pause_pkey primary key (pipeline),
    constraint pause_ends_within_seven_days check (until > since and until <= since + interval '7 days')
);

create table engine.schedule (
    key          text        not null,
    pipeline     text        not null,
    subject      jsonb       not null,
    cadence      jsonb       not null,
    next_due_at  timestamptz not null,
    last_due_at  timestamptz,
    last_job     uuid,
    last_refusal text,
    constraint schedule_pkey primary key (key)
);
create index schedule_next_due_at on engine.schedule (next_due_at);

-- When each scheduled function last finished; the row of catch_up also is the lock that stands for the count of active
-- scheduled jobs: counted in the statement that adds one, a cap of 20 let 51 through (the snapshot is older than the lock).
create table engine.run (
    function    text        not null,
    since       timestamptz not null default engine.clock(),
    finished_at timestamptz,
    counts      jsonb       not null default '{}',
    constraint run_pkey primary key (function)
);
insert into engine.run (function) values ('recovery'), ('relay'), ('catch_up'), ('clean_up');

-- What every end of a job does, in the statement that ends it: the ledger's rows it doesn't keep become garbage (keep is
-- null: all of them), the owed wake-up goes, and the trigger that came meanwhile gets its job.
create function engine.ended(past engine.job, keep bigint[], wakeup_lost interval) returns uuid
    language sql volatile
begin atomic
    with verdict as (
        select id, coalesce(keep is not null and (id = any (keep) or kept_by <> past.state), false) as kept
          from engine.ledger
         where job_id = past.id
    )
    update engine.ledger
       set status      = case when verdict.kept then 'kept' else 'garbage' end,
           kept_by     = case when verdict.kept then coalesce(kept_by, past.state) end,
           next_try_at = case when verdict.kept then null else engine.clock() end
      from verdict
     where ledger.id = verdict.id;
    delete from engine.outbox where job_id = past.id;
    with clock as materialized (
        select engine.clock() as now
    )
    , job as (
        insert into engine.job (pipeline, queue, conflict_key, subject, queue_budget, run_budget
                              , accepted_at, run_at, locked_until, deadline_at)
        select past.pipeline, past.queue, past.conflict_key, past.follow_up, past.queue_budget, past.run_budget
             , now, now
             , now + least(wakeup_lost, past.queue_budget + past.run_budget)
             , now + past.queue_budget + past.run_budget
          from clock
         where past.follow_up is not null
        returning *
    )
    , owed as (
        insert into engine.outbox (job_id, queue, run_at, send_at)
        select id, queue, run_at, run_at from job
    )
    , event as (
        insert into engine.job_event (job_id, at, kind, state, attempts, details)
        select id, accepted_at, 'accepted', state, attempts, jsonb_build_object('follows', past.id) from job
    )
    select id from job;
end;

-- The role the functions run as. Its time-outs stand on the role, because a pooler in transaction mode forgets a SET.
-- Who may not make roles (a managed database with its own) finds it made already.
do $$
begin
    if not exists (select from pg_roles where rolname = 'leaseway_app') then
        create role leaseway_app login;
    end if;
end
$$;
do $$
begin
    alter role leaseway_app set statement_timeout = '25s';
    alter role leaseway_app set lock_timeout = '25s';
    alter role leaseway_app set idle_in_transaction_session_timeout = '30s';
exception
    when insufficient_privilege then raise notice 'leaseway_app keeps its time-outs: set them by hand';
end
$$;
grant usage on schema engine to leaseway_app;
grant select, insert, update, delete on all tables in schema engine to leaseway_app;
grant usage, select, update on all sequences in schema engine to leaseway_app;
grant execute on all functions in schema engine to leaseway_app;
