"""An upgrade without a pause: two releases at once on the schema between them, each ending what the other began.

`before_0010.json` has the statements of the release before migration 0010, as they were; the Python around those that
changed is the same in both. Each story runs in every order of the releases, step by step.
"""

import json
from contextlib import contextmanager
from datetime import timedelta
from itertools import product
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from chalicelib import db
from chalicelib.db import Database, Refused, migrate
from chalicelib.engine import Engine, LeaseLost
from chalicelib.engine.lease import sql
from tests import toy
from tests.conftest import PUBLIC_URL, TEST_CLOCK, Clock, _database
from tests.toy import Parcel, kinds, take, work

BEFORE = json.loads(Path(__file__).with_name("before_0010.json").read_text())
ALL = [name for name, _ in db.migrations()]
PRE, POST = "0010_pre_oldest_snapshot.sql", "0010_post_events.sql"


@contextmanager
def release(which):
    """While it lasts, the statements are those of this release."""
    with pytest.MonkeyPatch.context() as patch:
        if which == "old":
            patch.setattr(sql, "_texts", dict(BEFORE))
        yield


@pytest.fixture(scope="module")
def old_template(admin_dsn):
    """The name of a database as the release before left it."""
    texts = dict(db.migrations())
    with _database(admin_dsn) as name:
        admin = make_conninfo(admin_dsn, dbname=name)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(db, "migrations", lambda: [(name, texts[name]) for name in ALL[: ALL.index(PRE)]])
            migrate(admin, PUBLIC_URL)
        with psycopg.connect(admin) as connection:
            connection.execute(TEST_CLOCK)
        yield name


@pytest.fixture
def installation(admin_dsn, old_template, settings, queues):
    """A database of the release before, an engine on it, and what brings it to another schema."""
    toy.behaviour.clear()
    with _database(admin_dsn, old_template) as name:
        admin = make_conninfo(admin_dsn, dbname=name)
        clock = Clock(admin)
        database = Database(make_conninfo(admin, options="-c role=leaseway_app -c lock_timeout=10s"))
        engine = Engine(database, toy.PIPELINES, settings, queues, monotonic=clock.monotonic, sleep=clock.sleep)
        yield engine, clock, lambda **how: migrate(admin, PUBLIC_URL, **how)
        database.close()
        clock.close()


def test_a_fresh_database_gets_everything_a_used_one_what_both_releases_can_run_on(installation, admin_dsn):
    _, _, migrating = installation
    assert migrating() == ALL[ALL.index(PRE) : ALL.index(POST)]
    assert migrating() == []
    assert migrating(deployed=True) == [POST]
    assert migrating(deployed=True) == []
    with _database(admin_dsn) as fresh:
        assert migrate(make_conninfo(admin_dsn, dbname=fresh), PUBLIC_URL) == ALL


def test_the_next_release_waits_until_this_one_is_complete(installation, monkeypatch):
    _, _, migrating = installation
    migrating()
    texts = [*db.migrations(), ("0999_pre_more.sql", "select 1")]
    monkeypatch.setattr(db, "migrations", lambda: texts)

    with pytest.raises(Refused, match=r"0010_post_events.sql belongs to the release before: .*leaseway migrate --dep"):
        migrating()

    assert migrating(deployed=True) == [POST, "0999_pre_more.sql"]


def test_the_migrations_change_something_that_a_statement_uses(installation):
    """Else the stories below would prove nothing: new code needs the one, old code loses an index with the other."""
    changed = {name for name in BEFORE if BEFORE[name] != getattr(sql, name)}
    assert "prune_events" in changed
    engine, _, migrating = installation
    with pytest.raises(psycopg.errors.UndefinedFunction):
        engine.health()
    migrating()
    assert engine.health().oldest_snapshot >= 0


def test_refreshes_that_were_on_without_a_way_back_are_off(installation):
    engine, _, migrating = installation
    engine.db.run("insert into refresh.switch (enabled) values (true)")
    migrating()
    assert engine.db.run("select enabled from refresh.switch") == [{"enabled": False}]
    with pytest.raises(psycopg.errors.CheckViolation):
        engine.db.run("update refresh.switch set enabled = true")


STEPS = ("accepts", "claims", "goes on", "recovers", "ends")


@pytest.mark.parametrize("releases", list(product(("old", "new"), repeat=len(STEPS))))
def test_jobs_in_flight_are_ended_by_whichever_release_comes(installation, figures, releases):
    engine, clock, migrating = installation
    by = dict(zip(STEPS, releases, strict=True))
    with release("old"):  # in flight when the schema changes: one in a lease, one with its wake-up on its way
        begun = [engine.accept("delivery", Parcel(name=name)).job.id for name in ("owned", "waiting")]
        held = take(engine, begun[0])
    migrating()
    with release(by["accepts"]):
        begun += [engine.accept("tour", Parcel(name=name)).job.id for name in ("handed over", "lost", "late")]
    with release(by["claims"]):
        lost, tour = take(engine, begun[3]), take(engine, begun[2])
    with release(by["goes on"]):
        held.heartbeat(force=True, records=7)
        tour.note("s3_object", {"key": "a"})
        tour.advance("DRIVE", [], {}, hand_over=True)
        held.advance("SHIP", [], {}, hand_over=False)
    clock.advance("50 s")
    with release(by["goes on"]):
        held.heartbeat(force=True)
    clock.advance("5 min")
    with release(by["recovers"]):
        counts = engine.recover()
        assert counts["worker_lost"] == 2  # the lost one, and the one that was held for too long
    with release(by["goes on"]), pytest.raises(LeaseLost):
        lost.heartbeat(force=True)
    clock.advance("1 min")
    with release(by["ends"]):
        while engine.work_on("work", [], lambda: 300):
            clock.advance(timedelta(minutes=1))
        engine.recover()
        engine.clean_up(removers={"s3_object": "tests.proof.test_upgrade:removed"})
    assert [engine.status(job).status for job in begun] == ["succeeded"] * len(begun)
    assert [kinds(engine, job).count("finished") for job in begun] == [1] * len(begun)
    assert work(engine) == "nothing"
    figures["orders"] = 1


@pytest.mark.parametrize("which", ["old", "new"])
@pytest.mark.parametrize("deployed", [False, True])
def test_retention_prunes_the_same_before_and_after(installation, which, deployed):
    """Old code that is met by what comes after the deployment is slower there, no more."""
    engine, clock, migrating = installation
    with release("old"):
        engine.accept("tour", Parcel(name="a"))
        engine.work_on("work", [], lambda: 300)
    migrating(deployed=deployed)
    clock.advance("31 days")
    engine.accept("tour", Parcel(name="b"))
    with release(which):
        counts = engine.clean_up(removers={})
    assert counts == {"pruned_events": 5, "pruned_jobs": 1}


def removed(row):
    """Whatever it is, it is gone."""
