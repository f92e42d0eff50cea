-- A step is done: the next state, what it hands on, what it keeps; with hand_over the claim is given back.
-- fence:  claim_id and the state, under FOR UPDATE (sent twice, it advances once); a cancelled job advances no more
-- index:  job_pkey, ledger_notes_a_thing_once, outbox_pkey
with held as materialized (
    select id, state, claim_id, engine.clock() as now
      from engine.job
     where id = %(job_id)s
       and claim_id = %(claim_id)s
       and locked_until > engine.clock()
       and cancel_requested_at is null
       and state = %(left_state)s
       for update
)
, job as (
    update engine.job as job
       set state           = %(next_state)s,
           result          = job.result || %(result)s,
           checkpoint      = null,
           outages         = 0,
           waiting_for     = null,
           waiting_since   = null,
           waiting_details = null,
           wake_ups        = 0,
           claim_id        = case when not %(hand_over)s then job.claim_id end,
           lease_owner     = case when not %(hand_over)s then job.lease_owner end,
           run_at          = now,
           locked_until    = least(now + case when %(hand_over)s then %(wakeup_lost)s else %(lease)s end, job.deadline_at)
      from held
     where job.id = held.id
    returning job.*, held.state as left_state, held.claim_id as by_claim, now
)
-- A step that runs again keeps what it names this time, and only that.
, kept as (
    update engine.ledger
       set status  = case when ledger.id = any (%(keep)s) then 'kept' else 'pending' end,
           kept_by = case when ledger.id = any (%(keep)s) then job.left_state end
      from job
     where ledger.job_id = job.id
       and (ledger.id = any (%(keep)s) or ledger.kept_by = job.left_state)
)
, owed as (
    insert into engine.outbox (job_id, queue, run_at, send_at)
    select id, queue, run_at, run_at from job where %(hand_over)s
        on conflict (job_id) do update
       set run_at = excluded.run_at, send_at = excluded.send_at, number = outbox.number + 1
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts)
    select id, now, case when %(hand_over)s then 'handed_over' else 'advanced' end, state, by_claim, attempts from job
)
select *, extract(epoch from locked_until - now)::float8 as seconds from job
