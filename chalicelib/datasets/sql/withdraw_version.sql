-- Mark a version as withdrawn, once; the newest version that stands is the current one then, or none is.
-- fence:  the caller holds the dataset's lock and has checked the job's claim under it
-- index:  version_pkey, dataset_pkey
with withdrawn as (
    update dataset.version
       set withdrawn_at = coalesce(withdrawn_at, engine.clock()),
           withdrawn_by = %(job)s
     where dataset_id = %(dataset)s
       and number = %(number)s
    returning dataset_id, number
)
update dataset.dataset as dataset
   set current_version = (select max(version.number)
                            from dataset.version as version
                           where version.dataset_id = dataset.id
                             and version.withdrawn_at is null
                             and version.number <> withdrawn.number)
  from withdrawn
 where dataset.id = withdrawn.dataset_id
returning dataset.current_version;
