-- Lock a dataset against everybody, also those who accept a job for it; who holds it now is not waited for.
-- fence:  FOR UPDATE
-- index:  dataset_pkey
select current_version
     , deleted_at
  from dataset.dataset
 where id = %(dataset)s
   for update nowait;
