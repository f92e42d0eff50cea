-- When each scheduled function last finished, and whether that is long ago.
-- fence:  none, it only reads
-- index:  none, they are four
select function
     , finished_at
     , counts
     , coalesce(finished_at, since) < engine.clock() - interval '5 minutes' as overdue
     , engine.clock() as now
  from engine.run
 order by function
