-- Make an upload, whose address is given out in this transaction's answer.
-- fence:  none; the ledger has it, in the same transaction
-- index:  upload_pkey
insert into dataset.upload (id, dataset_id, owner, bytes, expires_at)
values (%(id)s, %(dataset)s, %(owner)s, %(bytes)s, engine.clock() + %(lasts)s)
returning expires_at
