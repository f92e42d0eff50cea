-- Take one of the connection's slots; taken = false where all are. A slot counts while its job holds the claim that took it.
-- The pause until it is worth another look grows with the time for which the oldest has been held.
-- fence:  the caller holds the job's row and the connection's lock
-- index:  connection_slot_pkey, job_pkey
with held as materialized (
    select slot.taken_at
      from dataset.connection_slot as slot
      join engine.job as job
        on job.id = slot.job_id
       and job.claim_id = slot.claim_id
     where slot.connection = %(connection)s
       and slot.job_id <> %(job)s
       and job.finished_at is null
       and job.locked_until > engine.clock()
)
, taken as (
    insert into dataset.connection_slot (connection, job_id, claim_id, taken_at)
    select %(connection)s, %(job)s, %(claim)s, engine.clock()
     where (select count(*) from held) < %(max_jobs)s
        on conflict (connection, job_id) do update set claim_id = excluded.claim_id, taken_at = excluded.taken_at
    returning job_id
)
select exists (select from taken) as taken
     , coalesce(extract(epoch from engine.clock() - (select min(taken_at) from held)), 0)::float8 as held_for
