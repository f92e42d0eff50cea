-- The newest definition of each dataset that is made from a source, and isn't deleted.
-- index:  definition_pkey, dataset_pkey
select dataset_id
     , body
  from (
    select distinct on (dataset_id)
           dataset_id
         , body
      from dataset.definition
      join dataset.dataset
        on dataset.id = definition.dataset_id
       and dataset.deleted_at is null
     order by dataset_id, revision desc
  ) as newest
 where body ->> 'source' = %(source)s
 order by dataset_id;
