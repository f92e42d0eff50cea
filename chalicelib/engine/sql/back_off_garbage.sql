-- A piece of garbage could not be removed: again later, from a minute up to six hours, for ever.
-- fence:  none
-- index:  ledger_pkey
update engine.ledger
   set tries       = tries + 1,
       next_try_at = engine.clock() + least(interval '1 minute' * (2 ^ least(tries, 12)), interval '6 hours')
 where id = %(id)s
   and status = 'garbage'
