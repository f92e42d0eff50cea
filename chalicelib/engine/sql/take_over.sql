-- A job takes over what was left for it, in the transaction that accepts it: from now on the statement that ends the job
-- makes the thing garbage.
-- fence:  none: nobody sees the job before this transaction commits; no row once cleanup has had its turn. Only garbage has a
--         next try (garbage_is_tried)
-- index:  ledger_notes_a_thing_once
update engine.ledger
   set job_id = %(job_id)s, status = 'pending', next_try_at = null
 where job_id = %(thing)s
   and next_try_at > engine.clock()
   and removed_at is null
returning id
