-- Wait until nobody is changing the job's row; there may be no row.
-- fence:  none, it only waits
-- index:  job_pkey
select claim_id = %(claim_id)s and locked_until > engine.clock() as ours
     , cancel_requested_at is not null as cancelled
  from engine.job
 where id = %(job_id)s
   for key share
