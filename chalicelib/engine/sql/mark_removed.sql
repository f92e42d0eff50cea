-- A piece of garbage is removed; once more after the longest invocation, for a stale worker may still have been writing.
-- fence:  none: removing twice is harmless
-- index:  ledger_pkey
update engine.ledger
   set removed_at = engine.clock(), next_try_at = engine.clock() + interval '15 minutes', tries = 0
 where id = %(id)s
   and status = 'garbage'
