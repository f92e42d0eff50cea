-- A schedule.
-- fence:  none, it only reads
-- index:  schedule_pkey
select * from engine.schedule where key = %(key)s
