-- Delete a dataset: its row stays, so that its id and its numbers are never given again.
-- fence:  take_dataset has locked it; the CHECK deleted_has_no_current_version holds what the caller has looked at
-- index:  dataset_pkey
update dataset.dataset
   set deleted_at = engine.clock()
 where id = %(dataset)s;
