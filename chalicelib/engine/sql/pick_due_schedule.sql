-- The schedule that has been due for longest, without those of paused pipelines and those passed over in this run.
-- fence:  FOR UPDATE SKIP LOCKED
-- index:  schedule_next_due_at
select *, (select engine.clock()) as now
  from engine.schedule
 where next_due_at <= (select engine.clock())
   and key <> all (%(passed)s)
   and not %(paused)s && array[pipeline, '*']
 order by next_due_at
 limit 1
   for update
  skip locked
