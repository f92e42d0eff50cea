-- After a restore: which of these keys of object storage no row knows.
-- fence:  none, it reads; the keys were listed before, and every row is older than its object, so none is missed
-- index:  none: once after a restore
select key
  from unnest(%(keys)s::text[]) as found (key)
 where not exists (select
                     from engine.ledger
                    where kind in ('s3_object', 'upload')
                      and locator ->> 'key' = found.key)
   and not exists (select
                     from dataset.version
                    cross join jsonb_array_elements(files) as file
                    where withdrawn_at is null
                      and file ->> 'key' = found.key)
   and not exists (select
                     from dataset.source
                    where file ->> 'key' = found.key)
 order by key
