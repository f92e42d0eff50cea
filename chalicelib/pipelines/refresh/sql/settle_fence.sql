-- In a target's database: what this refresh changes there, committed with it; so a lost reply to COMMIT is read back.
-- fence:  under the lock of hold_fence
-- index:  leaseway_fence_pkey
update leaseway.leaseway_fence
   set applied = %(applied)s
 where target operator(pg_catalog.=) %(target)s
