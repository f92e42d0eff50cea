-- Remember the job that came of a request, in the transaction that accepts it.
-- fence:  take_key has locked the row
-- index:  idempotency_pkey
update engine.idempotency
   set job_id = %(job_id)s
 where principal = %(principal)s
   and route = %(route)s
   and key = %(key)s
