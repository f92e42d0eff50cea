-- A piece of garbage was removed twice: nobody can be writing it any more.
-- fence:  none
-- index:  ledger_pkey
delete from engine.ledger where id = %(id)s and status = 'garbage'
