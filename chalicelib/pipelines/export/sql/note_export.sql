-- Remember which job makes the export a key stands for.
-- fence:  two that ask at once: the second waits for the first's row and gets that one's job (the conflict key `export:…`
--         has given both the same job anyway); a deletion that came first stands
-- index:  export_pkey
insert into dataset.export (key, job_id, fence, created_at)
values (%(key)s, %(job)s, %(fence)s, engine.clock())
    on conflict (key) do update set fence = greatest(export.fence, excluded.fence)
returning job_id, fence, deleted_at is not null as deleted, 0.0::float8 as age
