-- A table's name as a statement may hold it; nothing of a view, whose LOCK would ask for rights to what it is made of.
-- fence:  none, it reads the source's catalogue
-- index:  pg_class_oid_index
select oid::pg_catalog.regclass::pg_catalog.text
  from pg_catalog.pg_class
 where oid operator(pg_catalog.=) pg_catalog.to_regclass(%(relation)s)
   and relkind operator(pg_catalog.=) any (array['r', 'p']);
