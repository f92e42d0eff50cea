-- The unfinished job that holds a conflict key.
-- fence:  none, it only reads
-- index:  job_conflict_key
select *
  from engine.job
 where conflict_key = %(conflict_key)s
   and finished_at is null
