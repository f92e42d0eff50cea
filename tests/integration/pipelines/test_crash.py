"""What a server that crashes may not take back: a fence that was written elsewhere."""

import os
import signal
import time
from types import SimpleNamespace

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from chalicelib import pipelines
from chalicelib.catalog.store import StoreAway
from chalicelib.db import Database, migrate
from chalicelib.engine import Engine, Outage
from chalicelib.pipelines.publication import removal
from tests.conftest import PUBLIC_URL, running_postgresql

LOGGED = "select log_cnt from engine.claim_id"
"""How many numbers the log of the server is ahead: only the next one after the last of them is written there."""


def test_a_fence_that_cleanup_has_written_to_the_catalogue_is_not_given_again(settings, queues, monkeypatch):
    with running_postgresql() as server:
        migrate(server.dsn, PUBLIC_URL)
        db = Database(server.dsn)
        engine = Engine(db, pipelines.PIPELINES, settings, queues)
        db.run("insert into dataset.dataset (id) values ('trees')")
        written = [engine.fence(db)]
        while db.run(LOGGED)[0]["log_cnt"]:
            engine.fence(db)

        def crash(graph, content, fence, newest):
            written.append(fence)
            os.kill(server.pid(), signal.SIGQUIT)
            raise StoreAway("store", "timeout")

        monkeypatch.setattr(removal, "context", lambda: SimpleNamespace(db=db, engine=engine))
        monkeypatch.setattr(removal, "graph_store", lambda: SimpleNamespace(replace=crash))
        with pytest.raises(Outage):
            removal._write_again("trees", "a graph")
        end = time.monotonic() + 60
        while server.pid():
            assert time.monotonic() < end, "the server didn't go"
            time.sleep(0.01)
        server.start()

        assert engine.fence(db) > written[-1]
        db.close()


def test_a_fence_that_is_given_is_beyond_a_crash_though_the_log_of_its_number_is_another_one_s(settings, queues):
    """Somebody who has not committed has logged 32 numbers ahead, in memory so far: the next is not logged again."""
    with running_postgresql() as server, psycopg.connect(server.dsn) as claiming:
        migrate(server.dsn, PUBLIC_URL)
        db = Database(make_conninfo(server.dsn, options="-c role=leaseway_app"))
        engine = Engine(db, pipelines.PIPELINES, settings, queues)
        while db.run(LOGGED)[0]["log_cnt"]:
            engine.fence(db)
        claiming.execute("select engine.next_claim()")
        [(logged,)] = claiming.execute("select pg_current_wal_insert_lsn()").fetchall()

        engine.fence(db)

        assert db.run(LOGGED)[0]["log_cnt"], "nobody else's log covers this fence"
        assert db.run("select pg_current_wal_flush_lsn() >= %(logged)s::pg_lsn as flushed", logged=logged)[0]["flushed"]
        db.close()
