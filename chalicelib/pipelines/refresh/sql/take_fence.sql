-- In a target's database: from now on nobody with an older fence changes this table; waits for one that is about to.
-- fence:  this is the fence; it only grows. A newer one in the answer means that we are the older
-- index:  leaseway_fence_pkey
insert into leaseway.leaseway_fence as known (target, fence)
values (%(target)s, %(fence)s)
    on conflict (target) do update
   set fence = greatest(known.fence, excluded.fence)
returning fence, applied
