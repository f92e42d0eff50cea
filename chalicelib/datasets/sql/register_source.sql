-- Add the next revision of a source, unless the newest one says the same; its number either way.
-- No row means that somebody else added one at the same instant: ask again, and see it.
-- fence:  the key decides who adds a revision; FOR KEY SHARE, of the oldest one as in hold_source, waits for whoever removes the
--         source, and then begins anew
-- index:  source_pkey
with oldest as (
    select name
      from dataset.source
     where name = %(name)s
     order by revision
     limit 1
       for key share
), newest as (
    select revision
         , (connection, relation, query, file, store)
           is not distinct from ( %(connection)s::text, %(relation)s::text, %(query)s::text, %(file)s::jsonb
                                , %(store)s::text ) as same
      from dataset.source
     where name = (select name from oldest)
     order by revision desc
     limit 1
), added as (
    insert into dataset.source (name, revision, connection, relation, query, file, store, created_at)
    select %(name)s
         , coalesce((select revision from newest), 0) + 1
         , %(connection)s
         , %(relation)s
         , %(query)s
         , %(file)s
         , %(store)s
         , engine.clock()
     where not exists (select from newest where same)
        on conflict do nothing
    returning revision
)
select revision from added
 union all
select revision from newest where same;
