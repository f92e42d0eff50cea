-- In a target's database: where the fences of its tables stand, and what the last refresh of each has changed.
-- fence:  none: a second one that makes it at once fails, and comes again
-- index:  none
create table if not exists leaseway.leaseway_fence (
    target  pg_catalog.text not null,              -- schema.table
    fence   bigint          not null,              -- of the newest claim that began with it
    applied pg_catalog.jsonb,                      -- the audit of the last refresh: job, counts, verdicts
    constraint leaseway_fence_pkey primary key (target)
)
