-- Find the export a key stands for, and remember the newest fence that has asked for it.
-- fence:  only grows; a caller with an older one sees the newer and stops
-- index:  export_pkey
update dataset.export
   set fence = greatest(fence, %(fence)s)
 where key = %(key)s
returning job_id, fence, deleted_at is not null as deleted, extract(epoch from engine.clock() - created_at)::float8 as age
