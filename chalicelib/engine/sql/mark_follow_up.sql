-- Tell the active job of a conflict key that something newer was asked for: its end starts the follow-up, the newest
-- subject with what stays true of the one before. What its own subject says as well needs none, unless it is cancelled.
-- fence:  changes no key, so it passes beside the owner's FOR KEY SHARE; no row once the job has ended
-- index:  job_conflict_key
with job as (
    update engine.job
       set follow_up = case when cancel_requested_at is null and
                                 subject = %(subject)s || (select coalesce(jsonb_object_agg(field, true), '{}')
                                                             from unnest(%(stays_true)s::text[]) as field
                                                            where subject -> field = 'true') then follow_up
                            else %(subject)s || (select coalesce(jsonb_object_agg(field, true), '{}')
                                                   from unnest(%(stays_true)s::text[]) as field
                                                  where follow_up -> field = 'true') end
     where conflict_key = %(conflict_key)s
       and finished_at is null
       and pipeline = %(pipeline)s
    returning *
)
, event as (
    insert into engine.job_event (job_id, at, kind, state, claim_id, attempts)
    select id, engine.clock(), 'asked_again', state, claim_id, attempts from job
)
select * from job
