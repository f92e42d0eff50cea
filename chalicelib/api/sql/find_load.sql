-- What a load did.
-- fence:  none, it reads
-- index:  load_is_done_once
select rows
     , inserted
     , updated
     , deleted
  from dataset.load
 where job_id = %(job)s
