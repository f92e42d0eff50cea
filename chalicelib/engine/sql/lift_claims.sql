-- After a restore: no fence that was given out before is given again.
-- fence:  this is the fence
-- index:  none
select setval('engine.claim_id', greatest(%(above)s, (select last_value from engine.claim_id))) + 1 as next
