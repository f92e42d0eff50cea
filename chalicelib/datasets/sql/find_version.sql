-- One version, with its documents and its report.
-- index:  version_pkey
select *
  from dataset.version
 where dataset_id = %(dataset)s
   and number = %(number)s;
