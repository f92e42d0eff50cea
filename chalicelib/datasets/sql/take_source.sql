-- Lock a source against everybody, also those who are about to name it.
-- fence:  FOR UPDATE: who holds it is waited for; what is looked at afterwards is as they have left it
-- index:  source_pkey
select name
  from dataset.source
 where name = %(name)s
   for update;
