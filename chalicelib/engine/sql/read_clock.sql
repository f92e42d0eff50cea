-- The database's clock, the only one.
-- fence:  none, it only reads
-- index:  none
select engine.clock() as now
