-- In a target's database: what the login lacks on the table, whether the schema leaseway is there and may be created in.
-- fence:  none, it reads
-- index:  none
select (select string_agg(privilege, ' ')
          from unnest(array['SELECT', 'INSERT', 'UPDATE'] || case when %(replaces)s then array['DELETE'] else '{}' end)
               as privilege
         where not has_table_privilege(%(table)s, privilege))
     , exists (select from pg_namespace where nspname = 'leaseway')
     , coalesce((select has_schema_privilege(oid, 'CREATE') from pg_namespace where nspname = 'leaseway'), false)
