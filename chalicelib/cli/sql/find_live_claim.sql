-- Until when the last of the jobs that are worked on now is owned.
-- fence:  none, it reads
-- index:  none: once after a restore
select max(locked_until) as until
  from engine.job
 where claim_id is not null
   and locked_until > (select engine.clock())
