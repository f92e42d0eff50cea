-- Take up to ten wake-ups that are owed; who dies with them leaves them for the next run.
-- fence:  FOR UPDATE SKIP LOCKED; each is kept from other relays for 30 s, without a transaction open over the network
-- index:  outbox_send_at
with owed as materialized (
    select job_id
      from engine.outbox
     where send_at <= (select engine.clock())
     order by send_at
     limit 10
       for update
      skip locked
)
update engine.outbox
   set send_at = engine.clock() + interval '30 seconds'
  from owed
 where outbox.job_id = owed.job_id
returning outbox.job_id
        , outbox.queue
        , outbox.number
        , greatest(0, ceil(extract(epoch from run_at - engine.clock())))::int as delay
