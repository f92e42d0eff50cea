-- The token that has this hash, if it stands: not expired, not revoked.
-- index:  token_hash_is_unique
select id
     , principal
     , role
     , datasets
  from access.token
 where hash = %(hash)s
   and revoked_at is null
   and (expires_at is null or expires_at > engine.clock());
