-- In a target's database: what the login lacks on the table, whether the schema leaseway is there and may be created in.
-- fence:  none, it reads
-- index:  none
select (select pg_catalog.string_agg(privilege, ' ')
          from pg_catalog.unnest(array['SELECT', 'INSERT', 'UPDATE'] operator(pg_catalog.||)
                                 case when %(replaces)s then array['DELETE'] else '{}' end) as privilege
         where not pg_catalog.has_table_privilege(%(table)s, privilege))
     , exists (select from pg_catalog.pg_namespace where nspname operator(pg_catalog.=) 'leaseway')
     , coalesce((select pg_catalog.has_schema_privilege(oid, 'CREATE')
                   from pg_catalog.pg_namespace
                  where nspname operator(pg_catalog.=) 'leaseway'), false)
