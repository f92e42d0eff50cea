-- The loads of a dataset that wait or run: how many, and since when the oldest is there. Whose they are isn't said.
-- index:  job_order_number
select count(*) as unfinished
     , min(accepted_at) as since
  from engine.job
 where order_key = 'load:' || %(dataset)s::text
   and finished_at is null;
