-- Every token there ever was, without its hash.
select id
     , principal
     , role
     , datasets
     , created_at
     , expires_at
     , revoked_at
     , revoked_at is null and (expires_at is null or expires_at > engine.clock()) as stands
  from access.token
 order by created_at, id;
