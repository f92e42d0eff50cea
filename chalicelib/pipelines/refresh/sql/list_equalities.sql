-- In a target's database: by which operator these types are equal, as unique indexes and GROUP BY have it. One that has none of
-- its own (varchar, an enum, an array) isn't here: PostgreSQL's does.
-- fence:  none, it reads
-- index:  none
select opcintype
     , pg_catalog.format('operator(%%I.%%s)', nspname, oprname)
  from pg_catalog.pg_opclass
  join pg_catalog.pg_am as method
    on method.oid operator(pg_catalog.=) opcmethod
   and amname operator(pg_catalog.=) 'btree'
  join pg_catalog.pg_amop
    on amopfamily operator(pg_catalog.=) opcfamily
   and amoplefttype operator(pg_catalog.=) opcintype
   and amoprighttype operator(pg_catalog.=) opcintype
   and amopstrategy operator(pg_catalog.=) 3
  join pg_catalog.pg_operator as equality
    on equality.oid operator(pg_catalog.=) amopopr
  join pg_catalog.pg_namespace as schema
    on schema.oid operator(pg_catalog.=) oprnamespace
 where opcdefault
   and opcintype operator(pg_catalog.=) any (%(oids)s::pg_catalog.oid[])
