-- A new fence, for who writes to the outside without a job (cleanup). A number that another session has logged ahead logs
-- nothing itself, so that its COMMIT would wait for no flush, and after a crash the number would come again: the message
-- is written to the log in this transaction, and the COMMIT waits for all that stands before it (an xid alone: for none).
-- fence:  this is the fence
-- index:  none
select engine.next_claim() as fence, pg_logical_emit_message(true, 'leaseway', '')
