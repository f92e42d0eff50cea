-- Whether a dataset was deleted; until the transaction ends, it can't be.
-- fence:  FOR KEY SHARE: it passes beside whoever publishes, and waits for whoever deletes
-- index:  dataset_pkey
select deleted_at is not null as deleted
  from dataset.dataset
 where id = %(dataset)s
   for key share;
