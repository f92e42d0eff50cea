-- The newest definition of each dataset that is made from a source.
-- index:  definition_pkey
select dataset_id
     , body
  from (
    select distinct on (dataset_id)
           dataset_id
         , body
      from dataset.definition
     order by dataset_id, revision desc
  ) as newest
 where body ->> 'source' = %(source)s
 order by dataset_id;
