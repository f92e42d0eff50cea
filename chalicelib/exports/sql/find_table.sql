-- A table's name as a statement may hold it; nothing of a view, whose LOCK would ask for rights to what it is made of.
-- fence:  none, it reads the source's catalogue
-- index:  pg_class_oid_index
select oid::regclass::text
  from pg_catalog.pg_class
 where oid = to_regclass(%(relation)s)
   and relkind in ('r', 'p');
