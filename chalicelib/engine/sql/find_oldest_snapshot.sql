-- For how many seconds the oldest transaction that still looks at the past has been open.
-- fence:  none, it only reads
-- index:  none
select extract(epoch from engine.oldest_snapshot())::float8 as seconds
