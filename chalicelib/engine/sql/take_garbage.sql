-- Take one piece of garbage; who dies with it leaves it for later.
-- fence:  FOR UPDATE SKIP LOCKED; kept from other runs for 5 minutes
-- index:  ledger_garbage
with garbage as materialized (
    select id
      from engine.ledger
     where status = 'garbage'
       and next_try_at <= (select engine.clock())
     order by next_try_at
     limit 1
       for update
      skip locked
)
update engine.ledger
   set next_try_at = engine.clock() + interval '5 minutes'
  from garbage
 where ledger.id = garbage.id
returning ledger.id, job_id, claim_id, kind, locator, tries, removed_at
