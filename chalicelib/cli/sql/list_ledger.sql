-- What the jobs of a publication wrote outside, and what became of it.
-- fence:  none: the demo only looks
-- index:  export_pkey, ledger_notes_a_thing_once
select ledger.*
  from engine.ledger
 where job_id in (%(publication)s, (select job_id from dataset.export where key = %(publication)s))
 order by id
