-- Lock the connection's row, which stands for the number of its exports: counted in the statement that adds one, the
-- count's snapshot would be older than the lock.
-- fence:  the caller has checked the job's claim and holds its row (dataset, job, the rest)
-- index:  connection_pkey
select name
     , max_jobs
  from dataset.connection
 where name = %(connection)s
   for no key update
