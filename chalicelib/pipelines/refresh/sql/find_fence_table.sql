-- In a target's database: whether the fences' table is there.
-- fence:  none, it reads
-- index:  none
select pg_catalog.to_regclass('leaseway.leaseway_fence') is not null
