-- Whether there is a connection; until the transaction ends, it can't be removed.
-- fence:  FOR KEY SHARE: it passes beside exports, and waits for whoever removes the connection
-- index:  connection_pkey
select name
  from dataset.connection
 where name = %(name)s
   for key share;
