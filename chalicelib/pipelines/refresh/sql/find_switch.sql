-- Whether refreshes are enabled; no row where nobody ever touched the switch.
-- fence:  none, it reads
-- index:  switch_pkey
select enabled
     , rollback
     , changed_at
  from refresh.switch
