-- Which job makes, or made, an export; none once it is deleted.
-- fence:  none, it reads
-- index:  export_pkey
select job_id
     , extract(epoch from engine.clock() - created_at)::float8 as age
  from dataset.export
 where key = %(key)s
   and deleted_at is null
