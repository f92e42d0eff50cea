-- Of how many bytes an upload was announced to be.
-- fence:  none, it reads
-- index:  upload_pkey
select bytes
  from dataset.upload
 where id = %(upload)s
