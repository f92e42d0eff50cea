-- A page of jobs, newest first (the ids are UUIDv7).
-- fence:  none, it only reads
-- index:  job_pkey
select *
  from engine.job
 where id < coalesce(%(after)s, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
   and pipeline = coalesce(%(pipeline)s, pipeline)
   and case %(status)s::text
            when 'queued'    then finished_at is null and state = 'REQUESTED'
            when 'running'   then finished_at is null and state <> 'REQUESTED'
            when 'succeeded' then finished_at is not null
            else %(status)s::text is null
       end
 order by id desc
 limit %(limit)s
