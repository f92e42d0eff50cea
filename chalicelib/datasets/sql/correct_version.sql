-- Store the documents of a version anew: a version that they linked to was withdrawn.
-- fence:  the caller holds the dataset's lock and has checked the job's claim under it
-- index:  version_pkey
update dataset.version
   set documents = %(documents)s,
       triples   = %(triples)s
 where dataset_id = %(dataset)s
   and number = %(number)s;
