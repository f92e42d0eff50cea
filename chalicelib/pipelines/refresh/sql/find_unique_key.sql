-- In a target's database: whether a unique index keeps each key of the table from being there twice.
-- fence:  none, it reads
-- index:  none
select exists (select
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
