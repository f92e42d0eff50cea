-- When a dataset's versions were last added to and last taken from, and which one was taken last.
-- index:  version_pkey
select max(issued_at) as issued_at
     , max(withdrawn_at) as withdrawn_at
     , (array_agg(number order by withdrawn_at desc, number desc) filter (where withdrawn_at is not null))[1] as withdrawn
  from dataset.version
 where dataset_id = %(dataset)s;
