-- Remove a connection, and the slots that dead workers have left.
-- fence:  take_connection has locked it, and no source is read by it: nobody takes a slot
-- index:  connection_pkey, connection_slot_pkey
with left_over as (
    delete from dataset.connection_slot
     where connection = %(name)s
)
delete from dataset.connection
 where name = %(name)s;
