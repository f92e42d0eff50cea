-- Make a schedule, or change one; its next run follows a new cadence, and with the same one a due slot stays due. One that
-- isn't due is computed anew, for the clock may have been wrong; unless the new one is used already: it has come since, or
-- the clock has stepped back before it.
-- fence:  none
-- index:  schedule_pkey
insert into engine.schedule (key, pipeline, subject, cadence, next_due_at)
values (%(key)s, %(pipeline)s, %(subject)s, %(cadence)s, %(next_due_at)s)
    on conflict (key) do update
   set pipeline = excluded.pipeline, subject = excluded.subject, cadence = excluded.cadence
     , next_due_at = case when schedule.cadence = excluded.cadence
                           and (least(schedule.next_due_at, excluded.next_due_at) <= engine.clock()
                                or excluded.next_due_at = schedule.last_due_at)
                          then schedule.next_due_at else excluded.next_due_at end
returning *
