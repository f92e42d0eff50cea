-- Add the next revision of a definition, unless the newest one has the same content; its number either way.
-- No row means that somebody else added one at the same instant: ask again, and see it.
-- fence:  none; the key decides who adds a revision
-- index:  definition_pkey
with newest as (
    select revision
         , etag = %(etag)s as same
      from dataset.definition
     where dataset_id = %(dataset)s
     order by revision desc
     limit 1
), added as (
    insert into dataset.definition (dataset_id, revision, body, etag, created_at)
    select %(dataset)s
         , coalesce((select revision from newest), 0) + 1
         , %(body)s
         , %(etag)s
         , engine.clock()
     where not exists (select from newest where same)
        on conflict do nothing
    returning revision
)
select revision, true as created from added
 union all
select revision, false from newest where same;
