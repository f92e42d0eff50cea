-- A row if the server's log has no more of an error than its message.
-- fence:  none, it reads
-- index:  none
select 1 as terse where current_setting('log_error_verbosity') = 'terse'
