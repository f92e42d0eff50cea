-- A job that is unfinished or succeeded.
-- fence:  none, it only reads
-- index:  job_pkey
select * from engine.job where id = %(job_id)s
