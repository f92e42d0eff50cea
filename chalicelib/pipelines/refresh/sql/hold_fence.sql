-- In a target's database: keep the fence from being taken until the transaction ends; no row when a newer one was.
-- fence:  FOR UPDATE, against take_fence
-- index:  leaseway_fence_pkey
select fence
  from leaseway.leaseway_fence
 where target = %(target)s
   and fence = %(fence)s
   for update
