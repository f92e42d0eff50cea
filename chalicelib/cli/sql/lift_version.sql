-- After a restore: a version number that the outside has seen is never given again.
-- fence:  none: run while nothing else is
-- index:  dataset_pkey
insert into dataset.dataset as known (id, last_version)
values (%(dataset)s, %(number)s)
    on conflict (id) do update
   set last_version = excluded.last_version
 where known.last_version < excluded.last_version
returning id
