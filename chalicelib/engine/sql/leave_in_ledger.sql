-- Note a thing before it is made that no job owns yet: garbage after a while, unless a job takes it over.
-- fence:  none: nobody else knows the thing
-- index:  none, it only adds
insert into engine.ledger (job_id, claim_id, kind, locator, status, noted_at, next_try_at)
select %(thing)s, 0, %(kind)s, %(locator)s, 'garbage', now, now + %(lasts)s
  from (select engine.clock() as now) as clock
returning id
