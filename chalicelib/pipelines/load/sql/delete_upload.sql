-- Forget an upload whose object is deleted.
-- fence:  none: the ledger calls it garbage, so no load takes it any more
-- index:  upload_pkey
delete from dataset.upload
 where id = %(upload)s
