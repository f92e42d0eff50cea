-- Which privilege a refusal of the source's server (42501) is about. The server's message is only compared with names that
-- its catalogue holds, so that no text of the message travels, and whatever language it is in.
-- Lacking is what the login lacks itself, and what the owner of a view lacks on a relation beneath it.
-- fence:  none, it reads the source's catalogue
-- index:  none; asked once, after a failure
with lacking as (
    select nspname as name
         , nspname as schema
         , format('USAGE on schema %%I', nspname) as privilege
      from pg_catalog.pg_namespace
     where not has_schema_privilege(oid, 'USAGE')
     union all
    select relation.relname
         , nspname
         , format('SELECT on %%I.%%I', nspname, relation.relname)
      from pg_catalog.pg_class as relation
      join pg_catalog.pg_namespace as namespace on namespace.oid = relation.relnamespace
     where relation.relkind in ('r', 'p', 'v', 'm', 'f', 'S')
       and ( not has_table_privilege(relation.oid, 'SELECT')
             or exists (
                 select
                   from pg_catalog.pg_depend as uses
                   join pg_catalog.pg_rewrite as rule on rule.oid = uses.objid
                   join pg_catalog.pg_class as view on view.oid = rule.ev_class
                  where uses.classid = 'pg_catalog.pg_rewrite'::regclass
                    and uses.refclassid = 'pg_catalog.pg_class'::regclass
                    and uses.refobjid = relation.oid
                    and view.relkind = 'v'
                    and not has_table_privilege(view.relowner, relation.oid, 'SELECT') ) )
     union all
    select proname
         , nspname
         , format('EXECUTE on function %%s', routine.oid::regprocedure)
      from pg_catalog.pg_proc as routine
      join pg_catalog.pg_namespace as namespace on namespace.oid = routine.pronamespace
     where not has_function_privilege(routine.oid, 'EXECUTE')
)
select privilege
  from lacking
 where strpos(%(message)s, name) > 0
 order by right(%(message)s, length(name)) = name desc
     , length(name) desc
     , strpos(%(asked)s, schema) > 0 desc
     , privilege
 limit 1
