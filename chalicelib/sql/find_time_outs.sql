-- The database's name, and what stands on the functions' role for it alone, as name=value.
-- index:  none: an operator's act
select current_database() as name
     , array(select unnest(setconfig)
               from pg_db_role_setting
              where setrole = 'leaseway_app'::regrole
                and setdatabase = (select oid
                                     from pg_database
                                    where datname = current_database())) as standing;
