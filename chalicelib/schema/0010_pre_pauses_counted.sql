-- Until when the end of a pause has added to a job's bounds, where another one stood over it as well: that one adds the rest.
alter table engine.job add column pauses_counted_until timestamptz;
