-- Switch refreshes on, with the package to go back to, or off.
-- fence:  none: there is one row, the last one to write it is right
-- index:  switch_pkey
insert into refresh.switch (enabled, rollback, changed_at)
values (%(enabled)s, %(rollback)s, engine.clock())
    on conflict (is_the_one) do update
   set enabled    = excluded.enabled
     , rollback   = excluded.rollback
     , changed_at = excluded.changed_at
