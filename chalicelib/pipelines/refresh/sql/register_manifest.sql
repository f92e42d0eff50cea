-- Add the next version of the manifest, unless the newest one has the same content; its number either way.
-- No row means that somebody else added one at the same instant: ask again, and see it.
-- fence:  none; the key decides who adds a version
-- index:  manifest_pkey
with newest as (
    select version
         , sha256 = %(sha256)s as same
      from refresh.manifest
     order by version desc
     limit 1
), added as (
    insert into refresh.manifest (version, body, sha256, registered_at)
    select coalesce((select version from newest), 0) + 1
         , %(body)s
         , %(sha256)s
         , engine.clock()
     where not exists (select from newest where same)
        on conflict do nothing
    returning version
)
select version, true as created from added
 union all
select version, false from newest where same
