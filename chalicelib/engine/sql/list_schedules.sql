-- All schedules.
-- fence:  none, it only reads
-- index:  none, every row is wanted
select * from engine.schedule order by key
