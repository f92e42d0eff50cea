-- Lock a dataset: whoever changes its entry in the catalogue or its versions does so one after the other (invariant 13).
-- NO KEY, because nobody changes its id: a new revision of its definition needn't wait for the triple store.
-- fence:  none, it is the first lock of its transaction (dataset, job, the rest)
-- index:  dataset_pkey
select id
     , last_version
     , current_version
  from dataset.dataset
 where id = %(dataset)s
   for no key update;
