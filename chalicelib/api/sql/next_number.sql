-- The number that the next version of a dataset gets when it is published.
-- index:  dataset_pkey
select last_version + 1 as number
  from dataset.dataset
 where id = %(dataset)s;
