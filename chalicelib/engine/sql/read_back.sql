-- Did the write whose reply was lost arrive? It left its event, with the claim; the lock waits for one still at work.
-- fence:  claim_id
-- index:  job_event_job_id
select kind
  from engine.job_event
 where job_id = %(job_id)s
   and claim_id = %(claim_id)s
   and kind = %(kind)s
   and state = coalesce(%(state)s, state)
 order by id desc
 limit 1
