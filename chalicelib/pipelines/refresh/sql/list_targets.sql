-- How fresh each of these targets is, and what became of the last run that reached it.
-- fence:  none, it reads
-- index:  audit_target
select wanted.target
     , fresh.finished_at as refreshed_at
     , fresh.watermark
     , fresh.read - fresh.rejected as records
     , extract(epoch from engine.clock() - fresh.finished_at)::float8 as age
     , extract(epoch from engine.clock() - fresh.watermark)::float8 as watermark_age
     , latest.job_id
     , latest.outcome
     , latest.code
     , latest.finished_at
  from unnest(%(targets)s::text[]) with ordinality as wanted (target, position)
  left join lateral (select *
                       from refresh.audit
                      where audit.target = wanted.target
                        and audit.outcome = 'refreshed'
                      order by audit.finished_at desc
                      limit 1) as fresh on true
  left join lateral (select *
                       from refresh.audit
                      where audit.target = wanted.target
                      order by audit.finished_at desc
                      limit 1) as latest on true
 order by wanted.position
