-- Give a job's slots back, and those that nobody holds any more.
-- fence:  claim_id: a newer claim's slot stays
-- index:  connection_slot_pkey, job_pkey
delete from dataset.connection_slot as slot
 where connection = %(connection)s
   and case when job_id = %(job)s then claim_id = %(claim)s
            else not exists (select from engine.job as job
                              where job.id = slot.job_id
                                and job.claim_id = slot.claim_id
                                and job.finished_at is null) end
