-- Lock a connection against everybody, also those who are about to name it.
-- fence:  FOR UPDATE: who holds it is waited for; what is looked at afterwards is as they have left it
-- index:  connection_pkey
select secret
  from dataset.connection
 where name = %(name)s
   for update;
