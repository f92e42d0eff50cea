-- A scheduled function has finished.
-- fence:  none: the last one counts
-- index:  none, they are four
update engine.run
   set finished_at = engine.clock(), counts = %(counts)s
 where function = %(function)s
