-- A version of the manifest, the newest one if none is given.
-- fence:  none, it reads
-- index:  manifest_pkey
select version
     , body
     , sha256
     , registered_at
  from refresh.manifest
 where version = coalesce(%(version)s::int, version)
 order by version desc
 limit 1
