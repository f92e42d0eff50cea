-- Whatever needs a connection: sources, in any revision; manifests that stand or that a job or a failure has pinned; what a
-- refresh has left in its database, which cleanup removes by it.
-- fence:  the caller has locked the connection: who was about to name it has done so, or won't find it
-- index:  none: an operator's act
select 'source' as kind
     , name
  from dataset.source
 where connection = %(name)s
 union
select 'manifest', version::text
  from refresh.manifest
 where body -> 'contracts'
       @> jsonb_build_array(jsonb_build_object('target', jsonb_build_object('connection', %(name)s::text)))
   and (version = (select max(version) from refresh.manifest)
        or version in (select (subject ->> 'manifest')::int
                         from engine.job
                        where pipeline = 'refresh'
                          and finished_at is null
                        union
                       select (subject ->> 'manifest')::int
                         from engine.failure
                        where pipeline = 'refresh'))
 union
select 'left', locator ->> 'table'
  from engine.ledger
 where kind = 'refresh_staging'
   and locator ->> 'connection' = %(name)s
 order by kind, name;
