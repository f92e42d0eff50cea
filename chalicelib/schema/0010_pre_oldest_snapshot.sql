-- How long the oldest transaction that still looks at the past has been open. While it is, no dead row is removed, and a
-- queue makes many: the work goes on, ever slower. Only its age is told, for whose it is is seen by a superuser alone.
-- What a standby holds back has no age here (a walsender has no xact_start).
create function engine.oldest_snapshot() returns interval
    language sql stable security definer
    set search_path = pg_catalog
begin atomic
    select coalesce(max(clock_timestamp() - xact_start), interval '0')
      from pg_stat_activity
     where backend_xmin is not null
       and pid <> pg_backend_pid()
       and backend_type <> 'autovacuum worker'
       and datname = current_database();
end;

revoke execute on function engine.oldest_snapshot() from public;
grant execute on function engine.oldest_snapshot() to leaseway_app;
