-- The row that stands for the count of active scheduled jobs: first statement of catch-up's transaction, so that the
-- count that follows has a snapshot younger than the lock. No row: another run is at it.
-- fence:  FOR UPDATE SKIP LOCKED
-- index:  none, they are four
select function from engine.run where function = 'catch_up' for update skip locked
