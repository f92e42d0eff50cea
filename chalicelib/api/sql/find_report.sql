-- What a version's report says: how many warnings its entry's check gave, and what they are about, each once; how many
-- characters its XML lacks.
-- index:  version_pkey
select coalesce((version.report ->> 'warnings')::int, 0) as count
     , array(select distinct coalesce(result ->> 'field', result ->> 'rule') as about
               from jsonb_array_elements(version.report -> 'results') as result
              where result ->> 'severity' = 'Warning'
              order by about) as about
     , coalesce((version.report ->> 'characters_removed')::bigint, 0) as characters_removed
  from dataset.version as version
 where version.dataset_id = %(dataset)s
   and version.number = %(number)s;
