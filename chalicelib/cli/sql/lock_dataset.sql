-- Hold a dataset's row, so that whoever wants to write its entry in the catalogue waits.
-- fence:  none: the demo only looks
-- index:  dataset_pkey
select id from dataset.dataset where id = %(dataset)s for update
