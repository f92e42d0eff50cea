-- What a login could write in its database: itself, or as a role that it may become (SET ROLE, even where it doesn't
-- inherit). That default_transaction_read_only is on says nothing, for a session turns it off; nor does has_table_privilege
-- alone, for there are columns, owners, sequences, schemas, roles' attributes, and functions with their owner's rights.
-- Temporary tables and large objects are left out: every login may make those, and nobody else sees them.
-- fence:  none, it reads the source's catalogue
-- index:  none; asked by an operator
with role as (
    select oid
         , rolname
         , rolsuper
         , case when rolname = current_user then '' else format(', as %%I', rolname) end as as_whom
         , array_remove(array[ case when rolcreaterole  then 'may make roles' end
                             , case when rolcreatedb    then 'may make databases' end
                             , case when rolreplication then 'may replicate' end
                             , case when rolname in ( 'pg_write_all_data', 'pg_write_server_files'
                                                    , 'pg_execute_server_program' ) then 'has its rights' end ], null) as may
      from pg_catalog.pg_roles
     where rolname = current_user
        or ( pg_has_role(current_user, oid, 'MEMBER')
             and not (select rolsuper from pg_catalog.pg_roles where rolname = current_user) )
)
, namespace as (
    select oid, nspname
      from pg_catalog.pg_namespace
     where nspname <> 'information_schema'
       and nspname !~ '^pg_'
)
, found as (
    select 1 as place, 'is a superuser' as privilege, as_whom
      from role
     where rolsuper
     union all
    select 2, unnest(may), as_whom
      from role
     union all
    select 3, format('CREATE on database %%I', current_database()), as_whom
      from role
     where has_database_privilege(role.oid, current_database(), 'CREATE')
     union all
    select 4, format('CREATE on schema %%I', nspname), as_whom
      from role, namespace
     where has_schema_privilege(role.oid, namespace.oid, 'CREATE')
     union all
    select 5
         , format('%%s on %%I.%%I', string_agg(privilege, ', ' order by n), nspname, relname)
         , as_whom
      from role
     cross join namespace
      join pg_catalog.pg_class as relation on relation.relnamespace = namespace.oid
     cross join unnest(array['INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'ownership']) with ordinality as asked(privilege, n)
     where relation.relkind in ('r', 'p', 'v', 'm', 'f')
       and case when privilege = 'ownership' then relation.relowner = role.oid
                else has_table_privilege(role.oid, relation.oid, privilege)
                  or ( privilege in ('INSERT', 'UPDATE')
                       and has_any_column_privilege(role.oid, relation.oid, privilege) ) end
     group by nspname, relname, as_whom
     union all
    select 6, format('UPDATE on sequence %%I.%%I', nspname, relname), as_whom
      from role
     cross join namespace
      join pg_catalog.pg_class as relation on relation.relnamespace = namespace.oid
     where case when relation.relkind = 'S' then has_sequence_privilege(role.oid, relation.oid, 'USAGE, UPDATE') end
     union all
    select 7
         , format('EXECUTE on function %%s, which runs with the rights of %%I'
                 , routine.oid::regprocedure, pg_get_userbyid(routine.proowner))
         , as_whom
      from role
     cross join namespace
      join pg_catalog.pg_proc as routine on routine.pronamespace = namespace.oid
     where routine.prosecdef
       and routine.provolatile = 'v'
       and routine.proowner <> role.oid
       and has_function_privilege(role.oid, routine.oid, 'EXECUTE')
)
-- What a role that it may become can do only because everybody can, or because it is itself one of ours, is said once.
select distinct on (place, privilege)
       privilege || as_whom as finding
  from found
 where place = 1
    or not (select rolsuper from role where rolname = current_user)
 order by place, privilege, as_whom
