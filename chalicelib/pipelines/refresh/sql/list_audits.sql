-- What became of a refresh's contracts, in the order in which they ended.
-- fence:  none, it reads
-- index:  audit_pkey
select contract
     , manifest
     , target
     , outcome
     , code
     , details
     , read
     , inserted
     , updated
     , deleted
     , rejected
     , checks
     , watermark
     , started_at
     , finished_at
  from refresh.audit
 where job_id = %(job)s
 order by finished_at, contract
