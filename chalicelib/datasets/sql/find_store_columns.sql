-- The columns of a dataset's store, in order: their types as PostgreSQL writes them, whether null is refused, their place
-- in the key. No row where there is no store yet.
-- fence:  none, it reads; who changes the store holds its dataset
-- index:  pg_class_relname_nsp_index, pg_attribute_relid_attnum_index
select attribute.attname as name
     , format_type(attribute.atttypid, attribute.atttypmod) as type
     , attribute.attnotnull as required
     , array_position(key.indkey::int[], attribute.attnum::int) as key
  from pg_class as class
  join pg_attribute as attribute
    on attribute.attrelid = class.oid
   and attribute.attnum > 0
   and not attribute.attisdropped
  left join pg_index as key
    on key.indrelid = class.oid
   and key.indisprimary
 where class.relname = %(dataset)s
   and class.relnamespace = 'store'::regnamespace
 order by attribute.attnum;
