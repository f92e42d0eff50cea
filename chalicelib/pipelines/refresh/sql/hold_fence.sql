-- In a target's database: keep the fence from being taken until the transaction ends; no row when a newer one was.
-- fence:  FOR UPDATE, against take_fence
-- index:  leaseway_fence_pkey
select fence
  from leaseway.leaseway_fence
 where target operator(pg_catalog.=) %(target)s
   and fence operator(pg_catalog.=) %(fence)s
   for update
