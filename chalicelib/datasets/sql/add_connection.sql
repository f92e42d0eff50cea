-- Name a connection, or change the one of that name: only the name of the secret is kept. A limit that isn't given stays
-- as it is; a statement time-out of 0 takes it away.
-- index:  connection_pkey
insert into dataset.connection (name, secret, max_jobs, statement_timeout, created_at)
values ( %(name)s
       , %(secret)s
       , coalesce(%(max_jobs)s, 1)
       , nullif(%(statement_timeout)s::int, 0)
       , engine.clock() )
    on conflict (name) do update
       set secret            = excluded.secret
         , max_jobs          = coalesce(%(max_jobs)s, connection.max_jobs)
         , statement_timeout = case when %(statement_timeout)s::int is null then connection.statement_timeout
                                    else excluded.statement_timeout end;
