-- What the catalogue says of itself, in the place of what it said before.
-- fence:  none: there is one row, the last one to write it is right
-- index:  catalog_pkey
insert into dataset.catalog (body, applied_at)
values (%(body)s, engine.clock())
    on conflict (is_the_one) do update
   set body = excluded.body
     , applied_at = excluded.applied_at;
