-- End a token at once; a second time changes nothing.
-- index:  token_pkey
update access.token
   set revoked_at = coalesce(revoked_at, engine.clock())
 where id = %(id)s
returning id;
