-- After a restore: the files of the versions that stand, and whether the version is the current one.
-- fence:  none, it reads
-- index:  none: once after a restore
select version.dataset_id
     , version.number
     , version.number = dataset.current_version as is_current
     , file ->> 'key' as key
  from dataset.version as version
  join dataset.dataset as dataset
    on dataset.id = version.dataset_id
 cross join jsonb_array_elements(version.files) as file
 where version.withdrawn_at is null
 order by version.dataset_id, version.number
