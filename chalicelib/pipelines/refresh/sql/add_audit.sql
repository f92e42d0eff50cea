-- What became of a contract, for ever. It is written once: whoever comes later leaves it as it is.
-- fence:  the caller holds the job's row under its claim (hold_job), so that a stale worker writes none
-- index:  audit_pkey
insert into refresh.audit (job_id, contract, manifest, target, outcome, code, details, read, inserted, updated, deleted
                         , rejected, checks, watermark, fence, started_at, finished_at)
values (%(job)s, %(contract)s, %(manifest)s, %(target)s, %(outcome)s, %(code)s, %(details)s, %(read)s, %(inserted)s
      , %(updated)s, %(deleted)s, %(rejected)s, %(checks)s, %(watermark)s, %(fence)s, %(started_at)s, engine.clock())
    on conflict (job_id, contract) do nothing
