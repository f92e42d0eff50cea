-- Whatever needs a source: definitions as they are now, the records of versions, jobs that have pinned a revision of it and
-- failures that may be run again with it, manifests that stand or that such a job or failure has pinned.
-- fence:  the caller has locked the source: who was about to name it has done so, or won't find it
-- index:  none: an operator's act
with pinned as (
    select id, pipeline, subject, follow_up, 'job' as kind
      from engine.job
     where finished_at is null
     union all
    select job_id, pipeline, subject, null, 'failure'
      from engine.failure
     where pipeline <> 'export'     -- its publication's failure is the one that is run again
)
select 'definition' as kind
     , id as name
  from dataset.dataset
 where deleted_at is null
   and exists (select
                 from dataset.definition as newest
                where newest.dataset_id = dataset.id
                  and newest.body ->> 'source' = %(name)s
                  and not exists (select
                                    from dataset.definition as newer
                                   where newer.dataset_id = newest.dataset_id
                                     and newer.revision > newest.revision))
 union
select 'version', dataset_id
  from dataset.version
 where source_name = %(name)s
 union
select kind, id::text
  from pinned
 where %(name)s in (subject ->> 'source', follow_up ->> 'source')
 union
select 'manifest', version::text
  from refresh.manifest
 where body -> 'contracts' @> jsonb_build_array(jsonb_build_object('source', %(name)s::text))
   and (version = (select max(version) from refresh.manifest)
        or version in (select (subject ->> 'manifest')::int from pinned where pipeline = 'refresh'))
 order by kind, name;
