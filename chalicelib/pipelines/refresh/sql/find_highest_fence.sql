-- In a target's database: the highest fence that it knows.
-- fence:  none, it reads
-- index:  none
select coalesce(pg_catalog.max(fence), 0)
  from leaseway.leaseway_fence
