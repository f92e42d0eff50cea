-- Record what a load did, in the transaction that does it and finishes the job.
-- fence:  the caller holds the job's row; the key lets no load be done twice
-- index:  load_is_done_once
insert into dataset.load (job_id, dataset_id, mode, rows, inserted, updated, deleted)
values (%(job)s, %(dataset)s, %(mode)s, %(rows)s, %(inserted)s, %(updated)s, %(deleted)s)
