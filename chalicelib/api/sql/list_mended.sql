-- Which of these failures a later success has mended: a publication by a newer version, a withdrawal by the next one.
-- index:  failure_pkey, version_pkey
select failure.job_id
  from engine.failure as failure
 where failure.job_id = any(%(jobs)s)
   and exists (select
                 from dataset.version as version
                where version.dataset_id = failure.subject ->> 'dataset'
                  and case failure.pipeline
                      when 'publication' then version.issued_at > failure.failed_at
                      when 'withdrawal' then version.number = (failure.subject ->> 'version')::int
                                         and version.withdrawn_at is not null
                      end);
