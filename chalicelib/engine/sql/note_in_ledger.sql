-- Note a thing before it is made; the same thing again is the same row, noted by the newer claim.
-- fence:  claim_id, under FOR KEY SHARE, for another table is written
-- index:  job_pkey, ledger_notes_a_thing_once
with held as materialized (
    select id, claim_id
      from engine.job
     where id = %(job_id)s
       and claim_id = %(claim_id)s
       and locked_until > engine.clock()
       for key share
)
insert into engine.ledger (job_id, claim_id, kind, locator, noted_at)
select id, claim_id, %(kind)s, %(locator)s, engine.clock() from held
    on conflict (job_id, kind, locator) do update set claim_id = excluded.claim_id
returning id
