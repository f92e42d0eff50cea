-- A new fence, for who writes to the outside without a job (cleanup).
-- fence:  this is the fence
-- index:  none
select engine.next_claim() as fence
