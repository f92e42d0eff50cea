-- After a restore: the graphs that cleanup is about to write anew.
-- fence:  none, it reads
-- index:  ledger_garbage
select locator ->> 'graph' as graph
  from engine.ledger
 where status = 'garbage'
   and kind = 'graph'
   and removed_at is null
