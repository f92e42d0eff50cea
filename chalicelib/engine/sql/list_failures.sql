-- A page of failures, newest job first (the ids are UUIDv7).
-- fence:  none, it only reads
-- index:  failure_pkey, failure_conflict_key
select *
  from engine.failure
 where job_id < coalesce(%(after)s, 'ffffffff-ffff-ffff-ffff-ffffffffffff'::uuid)
   and pipeline = coalesce(%(pipeline)s, pipeline)
   and code = coalesce(%(code)s, code)
   and (%(conflict_key)s::text is null or conflict_key = %(conflict_key)s)
 order by job_id desc
 limit %(limit)s
