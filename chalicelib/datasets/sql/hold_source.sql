-- The newest revision of a source, which is there until the transaction ends.
-- fence:  FOR KEY SHARE: it passes beside whoever registers the next revision, and waits for whoever removes the source
-- index:  source_pkey
select name
     , revision
  from dataset.source
 where name = %(name)s
 order by revision desc
 limit 1
   for key share;
