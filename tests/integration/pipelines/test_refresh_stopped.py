"""A refresh stopped, or cut off, just before its target's COMMIT, for longer than its job is held.

The time-outs are short and real: it is the two servers that end what nobody commits.
"""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from chalicelib.pipelines.refresh.target import Target

STORE, IDLE = 2, 3
HELD = """
select pid from pg_stat_activity
 where datname = current_database() and state = 'idle in transaction' and query like '%for key share%'
"""
OF_THE_TARGET = "select pid from pg_stat_activity where pid = %s"


@pytest.fixture
def hurried(team: Any, dsn: str) -> Iterator[Any]:
    """The same team, with workers whose time-outs are short."""
    team.office.point(LEASEWAY_STORE_TIMEOUT=str(STORE), LEASEWAY_IDLE_IN_TRANSACTION=str(IDLE))
    options = f"{conninfo_to_dict(dsn)['options']} -c idle_in_transaction_session_timeout={IDLE}s"
    team.office.new_processes(make_conninfo(dsn, options=options))
    yield team
    team.office.db.close()


def until_none(team: Any, query: str, *values: object) -> None:
    end = time.monotonic() + 30
    while team.admin.execute(query, values or None).fetchone():
        assert time.monotonic() < end
        time.sleep(0.02)


def ended_at_its_deadline(team: Any, job: Any) -> str:
    """Recovery comes by, on a connection of its own; the failure's code."""
    team.clock.advance("31 hours")
    team.engine.recover()
    return team.engine.status(job).code


def test_a_worker_that_sleeps_until_its_job_was_ended_changes_nothing_when_it_wakes(hurried, monkeypatch):
    hurried.register()
    job, commit, codes = hurried.refresh(), Target.commit, []

    def sleeps(self, patience):
        assert hurried.admin.execute(HELD).fetchone()
        until_none(hurried, HELD)  # our own server has ended the transaction that held the job
        codes.append(ended_at_its_deadline(hurried, job))
        commit(self, patience)

    monkeypatch.setattr(Target, "commit", sleeps)
    hurried.office.engine.work("work", job=job, until=lambda: 900.0)

    assert codes == ["deadline_exceeded"]
    assert (hurried.target(), hurried.history(), hurried.audits(job)) == ([], [], {})
    assert hurried.engine.status(job).code == "deadline_exceeded"


def test_a_worker_that_wakes_while_its_job_is_held_comes_back_to_the_contract(hurried, monkeypatch):
    hurried.register()
    job, commit, slept = hurried.refresh(), Target.commit, []

    def sleeps(self, patience):
        if not slept:
            slept.append(job)
            until_none(hurried, OF_THE_TARGET, self._connection.info.backend_pid)
            assert hurried.admin.execute(HELD).fetchone()
        commit(self, patience)

    monkeypatch.setattr(Target, "commit", sleeps)
    hurried.office.engine.work("work", job=job, until=lambda: 900.0)
    assert hurried.engine.status(job).waiting_for.code == "target_unreachable"
    assert hurried.target() == []
    hurried.office.run(2)

    done = hurried.engine.status(job)
    assert (done.status, done.attempts, hurried.history()) == ("succeeded", 1, [("INSERT", 100)])


class Network:
    """What lies between a worker and its target; it may keep what is sent, and bring it when the sender has gone."""

    def __init__(self, host: str, port: int):
        self._to = (host, port)
        self._entrance = socket.create_server(("127.0.0.1", 0))
        self.port = self._entrance.getsockname()[1]
        self.works = threading.Event()
        self.works.set()
        self._begin(self._accept)

    def close(self) -> None:
        self.works.set()
        self._entrance.close()

    def _begin(self, act: Any, *arguments: Any) -> None:
        threading.Thread(target=act, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                comes, _ = self._entrance.accept()
                if not self.works.is_set():
                    comes.close()
                    continue
                goes = socket.create_connection(self._to)
                self._begin(self._pass, comes, goes)
                self._begin(self._pass, goes, comes)

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while said := source.recv(65_536):
                self.works.wait()
                sink.sendall(said)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


def test_a_commit_that_the_network_brings_after_its_job_was_ended_changes_nothing(hurried, monkeypatch):
    server = conninfo_to_dict(hurried.secret)
    network = Network(server["host"], int(server["port"]))
    hurried.office.point(LEASEWAY_SECRET_MART=make_conninfo(hurried.secret, host="127.0.0.1", port=network.port))
    hurried.register()
    job, commit, pids = hurried.refresh(), Target.commit, []

    def unheard(self, patience):
        pids.append(self._connection.info.backend_pid)
        network.works.clear()
        commit(self, patience)

    monkeypatch.setattr(Target, "commit", unheard)
    hurried.office.engine.work("work", job=job, until=lambda: 900.0)
    assert hurried.engine.status(job).waiting_for.code == "target_unreachable"
    assert ended_at_its_deadline(hurried, job) == "deadline_exceeded"
    network.works.set()
    until_none(hurried, OF_THE_TARGET, *pids)

    assert (hurried.target(), hurried.history(), hurried.audits(job)) == ([], [], {})
    network.close()


def test_what_a_target_defers_to_the_end_takes_its_time_before_the_job_is_held(hurried):
    hurried.admin.execute(f"""
        create function mart.take_your_time() returns trigger language plpgsql as $$
        begin
            perform pg_sleep({STORE + 1});
            return null;
        end $$;
        create constraint trigger last after insert on mart.trees deferrable initially deferred
           for each row when (new.id = 1) execute function mart.take_your_time()""")
    hurried.register()
    job = hurried.refresh()
    hurried.office.engine.work("work", job=job, until=lambda: 900.0)

    done = hurried.engine.status(job)
    assert (done.status, hurried.history()) == ("succeeded", [("INSERT", 100)])
