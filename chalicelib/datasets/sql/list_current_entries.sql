-- The current version of every dataset that has one: what the catalogue lists.
-- index:  dataset_pkey, version_pkey
select version.dataset_id
     , version.number
     , version.issued_at
     , version.documents
  from dataset.dataset as dataset
  join dataset.version as version
    on version.dataset_id = dataset.id
   and version.number = dataset.current_version
 order by version.dataset_id;
