-- Which table or view a name stands for, and on which server: no two were started in the same microsecond.
-- fence:  none, it reads the database's catalogue
-- index:  pg_class_oid_index
select pg_catalog.concat_ws(' ', extract(epoch from pg_catalog.pg_postmaster_start_time()), pg_database.oid, pg_class.oid)
     , relkind operator(pg_catalog.=) any (array['v', 'm'])
  from pg_catalog.pg_class
     , pg_catalog.pg_database
 where pg_class.oid operator(pg_catalog.=) pg_catalog.to_regclass(%(relation)s)
   and datname operator(pg_catalog.=) pg_catalog.current_database();
