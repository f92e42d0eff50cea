-- Jobs that run one at a time, in the order in which they were accepted: those of one order key (the loads of a dataset).
--
-- The first of them is the head and lives as every other job does. The others are held back: nobody claims them, recovery
-- sets their deadline anew instead of failing them, and the statement that ends the head releases the next. The key's row
-- of engine.line is the lock under which a job takes its place and under which the next one is released: so nobody takes a
-- place behind a head that is just leaving. Lock order: job, line, the next job. Whoever ends a job that is held back
-- takes no lock but that job's.

create table engine.line (
    order_key   text   not null,
    last_number bigint not null,
    constraint line_pkey primary key (order_key)
);

alter table engine.job
    add column order_key    text,
    add column order_number bigint,                       -- its place among all that ever had the key
    add column held_back    boolean not null default false,
    add constraint place_in_a_line check ((order_key is null) = (order_number is null)),
    add constraint held_back_in_a_line check (not held_back or order_key is not null),
    add constraint held_back_has_not_begun check (not held_back or state = 'REQUESTED' and finished_at is null);

-- One job of an order key at a time.
create unique index job_order_key on engine.job (order_key) where finished_at is null and not held_back;
-- Who comes next.
create unique index job_order_number on engine.job (order_key, order_number) where finished_at is null;
-- The oldest due job of a queue: what is held back isn't due.
drop index engine.job_due;
create index job_due on engine.job (queue, run_at) where claim_id is null and finished_at is null and not held_back;

-- Take the next place of a key: its number, and whether somebody is before it. Each statement in here sees what was
-- committed before it, so whoever waited for the lock sees whether the head has left meanwhile.
create function engine.take_place(key text, out number bigint, out held_back boolean)
    language plpgsql strict volatile
as $$
begin
    insert into engine.line (order_key, last_number) values (key, 1)
        on conflict (order_key) do update set last_number = line.last_number + 1
    returning last_number into number;
    held_back := exists (select from engine.job where job.order_key = key and job.finished_at is null);
end
$$;

-- The head has ended: the next one may be claimed, and its queue budget starts now. One that is being cancelled in this
-- moment is waited for, and then it is the turn of the one behind it.
create function engine.release_next(key text, wakeup_lost interval) returns uuid
    language plpgsql strict volatile
as $$
declare
    next engine.job;
begin
    perform from engine.line where order_key = key for update;
    if exists (select from engine.job where order_key = key and finished_at is null and not held_back) then
        return null;
    end if;
    update engine.job
       set held_back     = false,
           waiting_for   = null,
           waiting_since = null,
           run_at        = engine.clock(),
           locked_until  = engine.clock() + least(wakeup_lost, queue_budget + run_budget),
           deadline_at   = engine.clock() + queue_budget + run_budget
     where id = (select id
                   from engine.job
                  where order_key = key
                    and held_back
                  order by order_number
                  limit 1
                    for update)
    returning * into next;
    if not found then
        return null;
    end if;
    insert into engine.outbox (job_id, queue, run_at, send_at)
    values (next.id, next.queue, next.run_at, next.run_at)
        on conflict (job_id) do update
       set run_at = excluded.run_at, send_at = excluded.send_at, number = outbox.number + 1;
    insert into engine.job_event (job_id, at, kind, state, attempts)
    values (next.id, next.run_at, 'released', next.state, next.attempts);
    return next.id;
end
$$;

-- As before, and the next of its order key is released. (A job with an order key has no follow-up.)
create or replace function engine.ended(past engine.job, keep bigint[], wakeup_lost interval) returns uuid
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
    select id from job
    union all
    select engine.release_next(past.order_key, wakeup_lost)
     where past.order_key is not null
       and not past.held_back;
end;

grant select, insert, update, delete on engine.line to leaseway_app;
grant execute on all functions in schema engine to leaseway_app;
