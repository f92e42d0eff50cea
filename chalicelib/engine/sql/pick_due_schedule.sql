-- The schedule that has been due for longest, without those passed over in this run.
-- fence:  FOR UPDATE SKIP LOCKED
-- index:  schedule_next_due_at
select *, (select engine.clock()) as now
  from engine.schedule
 where next_due_at <= (select engine.clock())
   and key <> all (%(passed)s)
 order by next_due_at
 limit 1
   for update
  skip locked
