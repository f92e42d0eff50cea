-- What the types of columns are: name, kind and schema, of an array those of its elements (the name with []), of a domain
-- those of what it is made of. A type of an extension is written by functions of its schema.
-- fence:  none, it reads the source's catalogue
-- index:  pg_type_oid_index, pg_namespace_oid_index
with recursive element as (
    select array_type.oid as array_oid
         , array_type.typelem as oid
      from pg_catalog.pg_type as array_type
      join pg_catalog.pg_type as element_type
        on element_type.oid = array_type.typelem
       and element_type.typarray = array_type.oid  -- an int2vector has elements, too
     where array_type.oid = any(%(oids)s)
     union all
    select element.array_oid
         , domain_type.typbasetype
      from element
      join pg_catalog.pg_type as domain_type
        on domain_type.oid = element.oid
       and domain_type.typtype = 'd'
)
select described.oid
     , coalesce(element_type.typname || '[]', described.typname)
     , coalesce(element_type.typtype, described.typtype)
     , nspname
  from pg_catalog.pg_type as described
  left join ( element join pg_catalog.pg_type as element_type
                on element_type.oid = element.oid
               and element_type.typtype <> 'd' )
    on element.array_oid = described.oid
  join pg_catalog.pg_namespace as schema
    on schema.oid = coalesce(element_type.typnamespace, described.typnamespace)
 where described.oid = any(%(oids)s);
