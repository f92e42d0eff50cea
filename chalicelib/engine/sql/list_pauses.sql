-- The pauses that stand.
-- fence:  none, it only reads
-- index:  none, they are few
select * from engine.pause order by pipeline
