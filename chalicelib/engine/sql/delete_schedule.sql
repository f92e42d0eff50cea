-- Remove a schedule; its active job goes on.
-- fence:  none
-- index:  schedule_pkey
delete from engine.schedule where key = %(key)s returning key
