-- Forget the wake-ups that SQS acknowledged, unless a newer one is owed meanwhile.
-- fence:  the number that was sent
-- index:  outbox_pkey
delete from engine.outbox
 using unnest(%(jobs)s::uuid[], %(numbers)s::int[]) as sent (job_id, number)
 where outbox.job_id = sent.job_id
   and outbox.number = sent.number
