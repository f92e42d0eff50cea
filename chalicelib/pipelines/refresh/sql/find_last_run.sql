-- The last run that refreshed a target.
-- fence:  none, it reads
-- index:  audit_target
select read - rejected as came
     , watermark
     , finished_at
  from refresh.audit
 where target = %(target)s
   and outcome = 'refreshed'
 order by finished_at desc
 limit 1
