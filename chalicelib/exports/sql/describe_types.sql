-- What the types of columns are: name, kind and schema, of an array those of its elements (the name with []), of a domain
-- those of what it is made of. A type of an extension is written by functions of its schema.
-- fence:  none, it reads the source's catalogue
-- index:  pg_type_oid_index, pg_namespace_oid_index
with recursive element as (
    select array_type.oid as array_oid
         , array_type.typelem as oid
      from pg_catalog.pg_type as array_type
      join pg_catalog.pg_type as element_type
        on element_type.oid operator(pg_catalog.=) array_type.typelem
       and element_type.typarray operator(pg_catalog.=) array_type.oid  -- an int2vector has elements, too
     where array_type.oid operator(pg_catalog.=) any (%(oids)s::pg_catalog.oid[])
     union all
    select element.array_oid
         , domain_type.typbasetype
      from element
      join pg_catalog.pg_type as domain_type
        on domain_type.oid operator(pg_catalog.=) element.oid
       and domain_type.typtype operator(pg_catalog.=) 'd'
)
select described.oid
     , coalesce(element_type.typname operator(pg_catalog.||) '[]', described.typname)
     , coalesce(element_type.typtype, described.typtype)
     , nspname
  from pg_catalog.pg_type as described
  left join ( element join pg_catalog.pg_type as element_type
                on element_type.oid operator(pg_catalog.=) element.oid
               and element_type.typtype operator(pg_catalog.<>) 'd' )
    on element.array_oid operator(pg_catalog.=) described.oid
  join pg_catalog.pg_namespace as schema
    on schema.oid operator(pg_catalog.=) coalesce(element_type.typnamespace, described.typnamespace)
 where described.oid operator(pg_catalog.=) any (%(oids)s::pg_catalog.oid[]);
