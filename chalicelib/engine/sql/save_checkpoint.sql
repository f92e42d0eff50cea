-- Remember where a step is; where the pipeline says so, committed progress gives the attempts back.
-- fence:  claim_id, in this statement
-- index:  job_pkey
update engine.job
   set checkpoint = %(checkpoint)s,
       attempts   = case when %(restores_attempts)s then 1 else attempts end
 where id = %(job_id)s
   and claim_id = %(claim_id)s
   and locked_until > engine.clock()
returning attempts
