-- Remember what an operator did; one without a token is named by the database's login.
insert into access.act (at, principal, act, job_id, target)
values (engine.clock(), coalesce(%(principal)s, session_user), %(act)s, %(job_id)s, %(target)s);
