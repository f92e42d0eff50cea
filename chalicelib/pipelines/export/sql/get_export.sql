-- Which job makes, or made, an export.
-- fence:  none, it reads
-- index:  export_pkey
select job_id
  from dataset.export
 where key = %(key)s
