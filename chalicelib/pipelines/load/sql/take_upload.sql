-- Give an upload to the load that is being accepted: its owner's, of this dataset, once, and before it expires.
-- fence:  the row's lock: of two loads that want it the second finds it taken
-- index:  upload_pkey
update dataset.upload
   set job_id = %(job)s
 where id = %(upload)s
   and dataset_id = %(dataset)s
   and owner = %(owner)s
   and job_id is null
   and expires_at > engine.clock()
returning id
