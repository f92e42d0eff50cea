-- Whatever an ended job kept is garbage from now on.
-- fence:  none: no row while the job is unfinished, and an ended job writes no more
-- index:  ledger_notes_a_thing_once, job_pkey
update engine.ledger
   set status = 'garbage', kept_by = null, next_try_at = engine.clock()
 where job_id = %(job_id)s
   and status <> 'garbage'
   and not exists (select from engine.job where id = %(job_id)s and finished_at is null)
returning id
