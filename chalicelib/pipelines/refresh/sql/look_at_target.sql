-- In a target's database: what the login lacks on the table, whether the schema leaseway is there and may be created in,
-- and whether a unique index covers exactly the key.
-- fence:  none, it reads
-- index:  none
select (select string_agg(privilege, ' ')
          from unnest(array['SELECT', 'INSERT', 'UPDATE'] || case when %(replaces)s then array['DELETE'] else '{}' end)
               as privilege
         where not has_table_privilege(%(table)s, privilege))
     , exists (select from pg_namespace where nspname = 'leaseway')
     , coalesce((select has_schema_privilege(oid, 'CREATE') from pg_namespace where nspname = 'leaseway'), false)
     , exists (select
                 from pg_index
                where indrelid = to_regclass(%(table)s)
                  and indisunique
                  and indisvalid
                  and indpred is null
                  and indexprs is null
                  and %(key)s::text[] = (select array_agg(attname::text order by attname::text collate "C")
                                           from pg_attribute
                                          where attrelid = indrelid
                                            and attnum = any (indkey::int2[])))
