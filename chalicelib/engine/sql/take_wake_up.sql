-- Take the wake-up that is owed to one job, if it is time; who dies with it leaves it for the next run.
-- fence:  FOR UPDATE SKIP LOCKED; it is kept from other relays for 30 s, without a transaction open over the network
-- index:  outbox_pkey
with owed as materialized (
    select job_id
      from engine.outbox
     where job_id = %(job_id)s
       and send_at <= engine.clock()
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
