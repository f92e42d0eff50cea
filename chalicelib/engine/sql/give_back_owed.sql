-- Wake-ups that SQS did not acknowledge are owed as before, behind the others.
-- fence:  the number that was sent
-- index:  outbox_pkey
update engine.outbox
   set send_at = engine.clock()
  from unnest(%(jobs)s::uuid[], %(numbers)s::int[]) as unsent (job_id, number)
 where outbox.job_id = unsent.job_id
   and outbox.number = unsent.number
