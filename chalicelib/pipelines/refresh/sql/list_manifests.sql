-- Every version of the manifest, newest first.
-- fence:  none, it reads
-- index:  manifest_pkey
select version
     , sha256
     , jsonb_array_length(body -> 'contracts') as contracts
     , registered_at
  from refresh.manifest
 order by version desc
