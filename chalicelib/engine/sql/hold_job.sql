-- Keep a job from being taken away until the caller's transaction ends.
-- fence:  claim_id, under FOR KEY SHARE: our own heartbeat passes, whoever takes the claim away waits
-- index:  job_pkey
select id
  from engine.job
 where id = %(job_id)s
   and claim_id = %(claim_id)s
   and locked_until > engine.clock()
   for key share
