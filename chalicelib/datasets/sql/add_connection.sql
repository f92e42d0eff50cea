-- Name a connection, or give the one of that name another secret: only the name of the secret is kept.
-- index:  connection_pkey
insert into dataset.connection (name, secret, created_at)
values (%(name)s, %(secret)s, engine.clock())
    on conflict (name) do update set secret = excluded.secret;
