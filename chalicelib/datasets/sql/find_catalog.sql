-- What was applied as the catalogue's own description, if anything was.
-- fence:  none, it reads
-- index:  catalog_pkey
select body
     , applied_at
  from dataset.catalog;
