"""The connection of a function process, which sleeps between requests."""

import select
from contextlib import suppress

import psycopg
import pytest

from chalicelib.db import Database, DatabaseAway


def ended(database: Database, admin_dsn: str) -> None:
    """The server ends the idle connection, as a restart does, and its last words have arrived."""
    server = database._connection.pgconn
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute("select pg_terminate_backend(%s, 5000)", [server.backend_pid])


def test_the_first_statement_after_the_server_ended_an_idle_connection_succeeds(database, admin_dsn):
    assert database.one("select 1 as one") == {"one": 1}
    ended(database, admin_dsn)
    assert database.one("select 2 as two") == {"two": 2}


def test_so_does_the_first_transaction(database, admin_dsn):
    database.run("select 1")
    ended(database, admin_dsn)
    with database.transaction() as tx:
        assert tx.one("select 3 as three") == {"three": 3}


def test_a_connection_that_ends_in_a_transaction_is_not_opened_behind_its_back(database, admin_dsn):
    def interrupted():
        with database.transaction() as tx:
            tx.run("select 1")
            ended(database, admin_dsn)
            database.run("select 2")

    with pytest.raises(DatabaseAway):
        interrupted()


def test_nor_for_the_statements_that_follow(database, admin_dsn):
    """They would be committed by themselves, as half of a transaction that is over: the caller goes on with it."""

    def gone_on():
        with database.transaction(), database.transaction() as tx:
            tx.run("select 1")
            ended(database, admin_dsn)
            for _ in range(2):
                with suppress(DatabaseAway):
                    database.run("create temporary table kept (id int)")
            with suppress(DatabaseAway), database.transaction():
                database.run("create temporary table kept (id int)")

    with pytest.raises(DatabaseAway):
        gone_on()
    assert database.one("select to_regclass('kept') as kept") == {"kept": None}


def test_a_connection_that_takes_no_writes_is_away_and_opened_anew(database, admin_database_dsn):
    """It leads to a standby, or to one that isn't promoted yet: the next one may lead to the primary."""
    database.run("set default_transaction_read_only = on")
    for write in (database.run, lambda text: _within(database, text)):
        database.run("set default_transaction_read_only = on")
        before = database.one("select pg_backend_pid() as pid")
        with pytest.raises(DatabaseAway):
            write("create table public.kept (id int)")
        assert database.one("select pg_backend_pid() as pid") != before
    assert database.one("show default_transaction_read_only") == {"default_transaction_read_only": "off"}


def _within(database: Database, text: str) -> None:
    with database.transaction() as tx:
        tx.run(text)


def test_a_living_connection_is_kept(database):
    assert len({database.one("select pg_backend_pid() as pid")["pid"] for _ in range(3)}) == 1


def test_a_connection_that_is_left_in_a_statement_is_opened_anew(database: Database) -> None:
    """A server that goes down may leave it so, and libpq refuses whatever comes: for as long as the process lives."""
    database.run("select 1")
    connection = database._connection
    assert connection
    connection.pgconn.send_query(b"select 1")

    assert database.run("select 2 as two") == [{"two": 2}]


def test_who_slept_in_a_transaction_until_the_server_ended_it_hears_that_it_is_away(database: Database) -> None:
    def asleep() -> None:
        with database.transaction() as tx:
            tx.run("set local idle_in_transaction_session_timeout = '20ms'")
            connection = database._connection
            assert connection
            select.select([connection.pgconn.socket], [], [], 10)  # its last words have arrived
            tx.run("select 1")

    with pytest.raises(DatabaseAway):
        asleep()
    assert database.run("select 2 as two") == [{"two": 2}]
