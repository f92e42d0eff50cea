"""What the target's server loses of a staging table when it crashes is staged again, also behind a pooler."""

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from chalicelib.pipelines.refresh.target import Target
from tests.conftest import running_postgresql
from tests.debian import NotToBeHad
from tests.pooler import pooling

from .conftest import Killed
from .refreshing import TARGET


class Mart:
    """A database of its own, with a pooler before it."""

    def __init__(self, server: Any, pooled: str):
        self.server = server
        self.secret = make_conninfo(pooled, dbname="postgres")

    def crash(self) -> None:
        """And be there again, also for who comes through the pooler."""
        os.kill(self.server.pid(), signal.SIGQUIT)
        while self.server.pid() is not None:
            time.sleep(0.02)
        self.server.start()
        end = time.monotonic() + 60
        while True:
            with suppress(psycopg.OperationalError), psycopg.connect(self.secret, connect_timeout=5) as through:
                through.execute("select 1")
                return
            assert time.monotonic() < end
            time.sleep(0.1)

    def trees(self) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.dsn) as admin:
            return admin.execute("select id, species from mart.trees order by id").fetchall()


@pytest.fixture
def mart(team: Any) -> Iterator[Mart]:
    with running_postgresql(durable=True) as server:
        with psycopg.connect(server.dsn, autocommit=True) as admin:
            admin.execute("create role leaseway_app login")
            admin.execute(TARGET)
            admin.execute("insert into mart.trees select n, 'old ' || n from generate_series(1, 150) n")
        try:
            with pooling(server.dsn) as pooled:
                mart = Mart(server, pooled)
                team.office.point(LEASEWAY_SECRET_MART=mart.secret)
                yield mart
        except NotToBeHad as error:
            pytest.skip(f"there is no PgBouncer: {error}")


def lose(team: Any) -> None:
    """Of what is staged five records stay."""
    [table] = team.staging()
    team.admin.execute(f"delete from leaseway.{table} where id > 5")


def crashing(monkeypatch: Any, mart: Mart, name: str, call: int, *, after: bool) -> list[str]:
    """The server crashes once, before or after the n-th call of this."""
    real, calls, crashes = getattr(Target, name), [], []

    def passing(self, *arguments, **more):
        calls.append(name)
        now = len(calls) == call and not crashes
        if now and not after:
            crashes.append(name)
            mart.crash()
        done = real(self, *arguments, **more)
        if now and after:
            crashes.append(name)
            mart.crash()
        return done

    monkeypatch.setattr(Target, name, passing)
    return crashes


@pytest.mark.parametrize(
    ("declared", "name", "call", "after"),
    [
        ({"chunk_rows": 10}, "last_key", 5, True),  # it went on behind the key, and the first forty were deleted
        ({"mode": "merge"}, "merging", 1, False),  # nothing was merged, and it had succeeded
    ],
)
def test_a_crash_of_the_targets_server_behind_a_pooler_loses_no_record(
    team, mart, monkeypatch, declared, name, call, after
):
    team.register(declared)
    crashes = crashing(monkeypatch, mart, name, call, after=after)
    job = team.refresh()
    team.office.work()

    waiting = team.engine.status(job)
    assert (crashes, waiting.waiting_for.code, waiting.attempts) == ([name], "staging_mismatch", 1)
    assert mart.trees() == [(n, f"old {n}") for n in range(1, 151)]
    team.office.run(2)

    assert team.engine.status(job).status == "succeeded"
    kept = [(n, f"old {n}") for n in range(101, 151)] if "mode" in declared else []
    assert mart.trees() == team.source() + kept
    assert team.audits(job)["trees"]["read"] == 100


def test_a_staging_table_that_lacks_what_the_checkpoint_counts_is_begun_anew(team, monkeypatch):
    team.register({"chunk_rows": 10})
    job, real, staged = team.refresh(), Target.stage, []

    def dies_at_the_fourth(self, *arguments, **more):
        if len(staged) == 3:
            staged.append(0)
            raise Killed
        staged.append(real(self, *arguments, **more))
        return staged[-1]

    monkeypatch.setattr(Target, "stage", dies_at_the_fourth)
    with pytest.raises(Killed):
        team.engine.work("work", job=job, until=lambda: 900.0)
    lose(team)
    team.office.run(3)

    done = team.engine.status(job)
    assert (done.status, done.attempts, team.target()) == ("succeeded", 2, team.source())
    assert sum(staged) == 30 + 100


def test_records_that_the_staging_table_lacks_at_the_merge_are_staged_again(team, monkeypatch):
    """As many must be there as were staged: five are left of a hundred."""
    team.register({"checks": {"max_drop": 1}})
    team.run()
    real, lost = Target.merging, []

    def merging(self):
        if not lost:
            lost.append(self)
            lose(team)
        return real(self)

    monkeypatch.setattr(Target, "merging", merging)
    job = team.refresh()
    team.office.work()
    assert team.engine.status(job).waiting_for.code == "staging_mismatch"
    assert team.target() == team.source()
    team.office.run(2)

    assert team.engine.status(job).status == "succeeded"
    assert team.audits(job)["trees"]["read"] == 100


def test_no_chunk_is_staged_behind_records_that_are_lost(team, monkeypatch):
    """The worker that did it may die, and the next one would find as many records as the checkpoint counts."""
    team.register({"chunk_rows": 10})
    job, last_key, stage, keys, staged = team.refresh(), Target.last_key, Target.stage, [], []

    def lost_then(self):
        keys.append(last_key(self))
        if len(keys) == 2:
            team.admin.execute(f"truncate leaseway.{team.staging()[0]}")
        return keys[-1]

    def dies_after_the_second(self, *arguments, **more):
        staged.append(stage(self, *arguments, **more))
        if len(staged) == 2 and len(keys) == 2:
            raise Killed
        return staged[-1]

    monkeypatch.setattr(Target, "last_key", lost_then)
    monkeypatch.setattr(Target, "stage", dies_after_the_second)
    team.office.work()
    assert team.engine.status(job).waiting_for.code == "staging_mismatch"
    team.office.run(3)

    assert (team.engine.status(job).status, team.target()) == ("succeeded", team.source())
