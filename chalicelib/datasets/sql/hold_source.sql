-- The newest revision of a source, which is there until the transaction ends.
-- fence:  FOR KEY SHARE, of the oldest one: it passes beside whoever registers the next revision, and waits for whoever removes
--         the source, who can't have locked what was registered meanwhile
-- index:  source_pkey
select name
     , ( select max(revision)
           from dataset.source as newest
          where newest.name = oldest.name ) as revision
  from dataset.source as oldest
 where name = %(name)s
 order by oldest.revision
 limit 1
   for key share;
