-- Stop the claims of a pipeline ('*': of all); a pause that stands gets another end.
-- fence:  none: a claim that came first goes on
-- index:  pause_pkey
insert into engine.pause (pipeline, since, until)
select %(pipeline)s, now, now + %(length)s from (select engine.clock() as now) as clock
    on conflict (pipeline) do update set until = excluded.until
returning *
