-- What a new version's metadata says of the dataset's versions so far, and the instant by the database's clock.
-- fence:  none, it reads; the number is compared again under the dataset's lock
-- index:  dataset_pkey, version_pkey
select dataset.last_version
     , dataset.current_version
     , (select records from dataset.version where version.dataset_id = dataset.id and number = current_version)
       as current_records
     , engine.clock() as now
     , (select min(version.issued_at) from dataset.version where version.dataset_id = dataset.id) as first_issued
  from dataset.dataset
 where dataset.id = %(dataset)s
