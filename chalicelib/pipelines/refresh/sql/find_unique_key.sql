-- In a target's database: whether a unique index keeps each key of the table from being there twice.
-- fence:  none, it reads
-- index:  none
select exists (select
                 from pg_catalog.pg_index
                where indrelid operator(pg_catalog.=) pg_catalog.to_regclass(%(table)s)
                  and indisunique
                  and indisvalid
                  and indpred is null
                  and indexprs is null
                  and %(key)s::pg_catalog.text[] operator(pg_catalog.=)
                      (select pg_catalog.array_agg(attname::pg_catalog.text
                                                   order by attname::pg_catalog.text collate pg_catalog."C")
                         from pg_catalog.pg_attribute
                        where attrelid operator(pg_catalog.=) indrelid
                          and attnum operator(pg_catalog.=) any (indkey::pg_catalog.int2[])))
