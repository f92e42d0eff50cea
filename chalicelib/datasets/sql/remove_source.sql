-- Remove every revision of a source; the objects that only they knew.
-- fence:  take_source has locked it, and nobody needs it
-- index:  source_pkey
with removed as (
    delete from dataset.source
     where name = %(name)s
    returning file
)
select distinct file ->> 'key' as key
  from removed
 where file is not null;
