-- Retention goes by the primary key of events from this release on, and no table is written as often.
drop index engine.job_event_at;
