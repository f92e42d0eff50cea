-- A key is never started again; which job made its export, or makes it still.
-- fence:  none: deleting twice is harmless, and a start that is on its way finds this row, whatever its fence
-- index:  export_pkey
insert into dataset.export (key, fence, created_at, deleted_at)
values (%(key)s, 0, engine.clock(), engine.clock())
    on conflict (key) do update set deleted_at = coalesce(export.deleted_at, excluded.deleted_at)
returning job_id
