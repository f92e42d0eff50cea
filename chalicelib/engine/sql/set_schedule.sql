-- Make a schedule, or change one; its next run follows a new cadence, and with the same one it stays: it may be due, or the
-- new one used already, by a catch-up meanwhile or before the clock stepped back. One so late that the clock must have been
-- wrong is computed anew.
-- fence:  none
-- index:  schedule_pkey
insert into engine.schedule (key, pipeline, subject, cadence, next_due_at)
values (%(key)s, %(pipeline)s, %(subject)s, %(cadence)s, %(next_due_at)s)
    on conflict (key) do update
   set pipeline = excluded.pipeline, subject = excluded.subject, cadence = excluded.cadence
     , next_due_at = case when schedule.cadence = excluded.cadence and schedule.next_due_at <= %(believable)s
                          then schedule.next_due_at else excluded.next_due_at end
returning *
