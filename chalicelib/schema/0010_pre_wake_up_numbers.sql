-- A wake-up's number is never given twice, not even to another row of the same job: a relay that hears of SQS late, after
-- another one has sent and forgotten the row, must not forget the newer one. An upsert takes a number, too, so that one
-- more than the row's own is never more than the sequence's.

create sequence engine.wake_up as int cycle;
alter table engine.outbox alter number set default nextval('engine.wake_up');
grant usage on sequence engine.wake_up to leaseway_app;
