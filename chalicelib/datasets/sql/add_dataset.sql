-- Make a dataset's row, the lock of everything that changes its entry; it stays for ever.
-- index:  dataset_pkey
insert into dataset.dataset (id, created_at)
values (%(dataset)s, engine.clock())
    on conflict do nothing;
