-- Remember what an operator did.
insert into access.act (at, principal, act, job_id, target)
values (engine.clock(), %(principal)s, %(act)s, %(job_id)s, %(target)s);
