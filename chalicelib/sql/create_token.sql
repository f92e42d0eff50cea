-- Keep the hash of a new token; its secret is kept nowhere. A second time changes nothing.
-- index:  token_hash_is_unique
insert into access.token (principal, role, datasets, hash, created_at, expires_at)
select %(principal)s
     , %(role)s
     , %(datasets)s
     , %(hash)s
     , clock.now
     , clock.now + make_interval(days => %(days)s::int)
  from (select engine.clock() as now) as clock
    on conflict (hash) do nothing;
