-- What the check of a version's entry advises: how many warnings, and what they are about, each once.
-- index:  version_pkey
select coalesce((version.report ->> 'warnings')::int, 0) as count
     , array(select distinct coalesce(result ->> 'field', result ->> 'rule') as about
               from jsonb_array_elements(version.report -> 'results') as result
              where result ->> 'severity' = 'Warning'
              order by about) as about
  from dataset.version as version
 where version.dataset_id = %(dataset)s
   and version.number = %(number)s;
