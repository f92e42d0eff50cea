"""An upgrade without a pause: two releases at once on the schema between them, each ending what the other began.

`before_0010.json` has the statements of the release before migration 0010, as they were, but for what today's Python
gives one of them; the Python around those that changed is the same in both. The stories run side by side, step by step,
in every order of the releases, and whatever statement has changed since must be run in them.
"""

import json
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise, product
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import chalicelib.engine
from chalicelib import db
from chalicelib.db import Refused, migrate
from chalicelib.engine import Cadence, Failure, Idempotency, LeaseLost, Outcome
from chalicelib.engine.lease import sql
from tests.conftest import PUBLIC_URL, TEST_CLOCK, _database
from tests.proof import world as worlds
from tests.proof.conftest import _world
from tests.proof.world import CAP, REMOVERS
from tests.toy import Parcel, kinds, take, work

BEFORE = json.loads(Path(__file__).with_name("before_0010.json").read_text())
# Today's Python ends a list of pauses, of one each here, and the release before one.
BEFORE["end_pause"] = BEFORE["end_pause"].replace("pipeline = %(pipeline)s", "pipeline = any (%(pipelines)s)")
TODAY = {file.stem: file.read_text() for file in (Path(chalicelib.engine.__file__).parent / "sql").glob("*.sql")}
CHANGED = {name for name in BEFORE if BEFORE[name] != TODAY.get(name)}
ADDED = TODAY.keys() - BEFORE.keys()
ALL = [name for name, _ in db.migrations()]
PRE, POST = "0010_pre_oldest_snapshot.sql", "0010_post_events.sql"


@contextmanager
def release(which):
    """While it lasts, the statements are those of this release; what the old one doesn't ask for it doesn't find."""
    with pytest.MonkeyPatch.context() as patch:
        if which == "old":
            patch.setattr(sql, "_texts", dict.fromkeys(ADDED, "select where false") | BEFORE)
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
def installation(admin_dsn, old_template, monkeypatch):
    """A world of the release before, and what brings it to another schema."""
    monkeypatch.setattr(worlds, "watching", [])  # the session's own world has its watch there
    with _database(admin_dsn, old_template) as name:
        admin = make_conninfo(admin_dsn, dbname=name)
        for world in _world(admin):
            world.reset()
            yield world, lambda **how: migrate(admin, PUBLIC_URL, **how)


def test_a_fresh_database_gets_everything_a_used_one_what_both_releases_can_run_on(installation, admin_dsn):
    _, migrating = installation
    assert migrating() == ALL[ALL.index(PRE) : ALL.index(POST)]
    assert migrating() == []
    assert migrating(deployed=True) == [POST]
    assert migrating(deployed=True) == []
    with _database(admin_dsn) as fresh:
        assert migrate(make_conninfo(admin_dsn, dbname=fresh), PUBLIC_URL) == ALL


def test_the_next_release_waits_until_this_one_is_complete(installation, monkeypatch):
    _, migrating = installation
    migrating()
    texts = [*db.migrations(), ("0999_pre_more.sql", "select 1")]
    monkeypatch.setattr(db, "migrations", lambda: texts)

    with pytest.raises(Refused, match=r"0010_post_events.sql belongs to the release before: .*leaseway migrate --dep"):
        migrating()

    assert migrating(deployed=True) == [POST, "0999_pre_more.sql"]


def test_the_new_release_needs_the_migration(installation):
    """Else the stories below would prove nothing."""
    world, migrating = installation
    with pytest.raises(psycopg.errors.UndefinedFunction):
        world.engine.health()
    migrating()
    assert world.engine.health().oldest_snapshot >= 0


def test_refreshes_that_were_on_without_a_way_back_are_off(installation):
    world, migrating = installation
    engine = world.engine
    engine.db.run("insert into refresh.switch (enabled) values (true)")
    migrating()
    assert engine.db.run("select enabled from refresh.switch") == [{"enabled": False}]
    with pytest.raises(psycopg.errors.CheckViolation):
        engine.db.run("update refresh.switch set enabled = true")


LATER = {"accepts": "1 min", "claims": "1 min", "goes on": "6 min", "recovers": "1 min", "ends": "0 s"}
"""The steps after the schema has changed, and what passes after each."""

# A story says what happens before the schema changes, in each step, and, once everything is quiet, what has come of it.


def leases(world, by):
    """Jobs that are worked on, handed over, and lost; and the fences of those who have no job."""
    engine, fences = world.engine, []
    jobs = [engine.accept("delivery", Parcel(name=name)).job.id for name in ("owned", "waiting")]
    held = take(engine, jobs[0])
    yield
    jobs += [engine.accept("tour", Parcel(name=name)).job.id for name in ("handed over", "lost", "late")]
    fences.append(engine.fence(engine.db))
    yield
    lost, tour = take(engine, jobs[3]), take(engine, jobs[2])
    fences += [lost.claim_id, tour.claim_id, engine.fence(engine.db)]
    yield
    held.heartbeat(force=True, records=7)
    tour.note("s3_object", {"key": "a"})
    tour.advance("DRIVE", [], {}, hand_over=True)
    held.advance("SHIP", [], {}, hand_over=False)
    world.clock.advance("50 s")
    held.heartbeat(force=True)
    yield
    assert engine.recover()["worker_lost"] == 2  # the lost one, and the one that was held for too long
    fences.append(engine.fence(engine.db))
    yield
    for leased in (lost, held):
        with pytest.raises(LeaseLost):
            leased.heartbeat(force=True)
    fences.append(engine.fence(engine.db))
    if by["ends"] == "new":
        assert engine.health().ok
    yield
    assert all(older < newer for older, newer in pairwise(fences))
    assert [engine.status(job).status for job in jobs] == ["succeeded"] * len(jobs)
    assert [kinds(engine, job).count("finished") for job in jobs] == [1] * len(jobs)


def schedules(world, by):
    """More of them are due than the cap lets start; what one has started is asked again, twice."""
    engine = world.engine
    keys = [f"s{number}" for number in range(CAP + 1)]

    def schedule(key, at="10:01"):
        engine.set_schedule(key, "delivery", {"name": key}, Cadence(every="day", at=at, zone="Europe/Berlin"))

    def again(revision):
        return engine.accept("delivery", Parcel(name="s0", revision=revision)).created

    schedule("s0")
    schedule("s1", "11:00")
    yield
    for key in keys:  # one anew, as it is, and one with another cadence
        schedule(key)
    yield
    assert engine.catch_up() == {"started": CAP, "cap_reached": 1}
    yield
    assert not again(8)
    schedule("s0")
    yield
    assert engine.catch_up() == {"cap_reached": 1}
    assert not again(9)
    yield
    schedule("s1")
    yield
    used = [schedule.last_due_at for schedule in engine.schedules()]
    assert [slot.isoformat() for slot in used] == ["2026-03-02T09:01:00+00:00"] * len(keys)
    found = "select subject, schedule from engine.job where subject ->> 'name' = any (%(keys)s)"
    done = engine.db.run(found, keys=keys)
    assert sorted(row["schedule"] for row in done if row["schedule"]) == keys
    assert [row["subject"] for row in done if not row["schedule"]] == [Parcel(name="s0", revision=9).model_dump()]


def requests(world, by):
    """The same request comes again and again: while its job is there, when it has failed, and when that was purged."""
    engine = world.engine
    mine, other = (Idempotency(principal=b"p", route="POST /tours", key=key, body=b"b") for key in (b"1", b"2"))

    def leave():
        thing = uuid4()
        with engine.db.transaction() as tx:
            engine.leave(tx, thing, "s3_object", {"key": str(thing)}, timedelta(hours=24))
        return thing

    def ask(key, thing=None):
        def accept(tx):
            job = engine.accept("tour", Parcel(name="asked"), tx=tx).job
            assert thing is None or engine.take_over(tx, thing, job.id)
            return job

        return engine.once(key, accept)

    thing = leave()
    yield
    job, thing = ask(mine, thing).id, leave()
    yield
    assert ask(mine).id == job
    failed = ask(other, thing).id
    assert engine.cancel(job) is Outcome.CANCELLED
    yield
    assert ask(mine) == engine.failure(job)
    assert engine.purge(job)
    world.watch.gone.add(str(job))
    assert engine.cancel(failed) is Outcome.CANCELLED
    yield
    answer = ask(mine)
    # The release before kept no answers: where it has purged, or is asked now, the key is as good as new.
    assert isinstance(answer, Failure) == (by["goes on"] == by["recovers"] == "new")
    requeued = engine.requeue(failed).job.id
    yield
    if isinstance(answer, Failure):
        assert answer.id == job
        assert isinstance(ask(mine), Failure) == (by["ends"] == "new")
    else:
        assert ask(mine).id == answer.id
    assert ask(other) == engine.failure(failed)
    assert engine.purge(failed)
    world.watch.gone.add(str(failed))
    yield
    assert engine.status(requeued).status == "succeeded"
    assert world.watch.last.ledger == {}


def pauses(world, by):
    """One pause ends early while another one stands, which recovery ends: what they held has lost no time."""
    engine, clock = world.engine, world.clock
    engine.pause("ferry")
    jobs = [engine.accept("ferry", Parcel(name="before")).job]
    yield
    jobs.append(engine.accept("ferry", Parcel(name="between")).job)
    yield
    jobs.append(engine.accept("ferry", Parcel(name="after")).job)
    engine.pause("*", hours=0.1)
    both = clock.now()
    yield
    assert engine.resume("ferry")
    overlap = clock.now() - both
    yield
    assert engine.pauses() == []
    # The release before counts such a pause from its beginning, whatever today's has counted of it.
    twice = overlap if (by["goes on"], by["recovers"]) == ("new", "old") else timedelta(0)
    for job in jobs:
        assert engine.job(job.id).deadline_at - job.deadline_at == clock.now() - job.accepted_at + twice
    yield
    yield
    assert [engine.status(job.id).status for job in jobs] == ["succeeded"] * len(jobs)


@pytest.mark.parametrize("releases", list(product(("old", "new"), repeat=len(LATER))))
def test_jobs_in_flight_are_ended_by_whichever_release_comes(installation, figures, releases):
    world, migrating = installation
    engine, by, ran = world.engine, dict(zip(LATER, releases, strict=True)), set()
    stories = [story(world, by) for story in (leases, schedules, requests, pauses)]

    def step():
        for story in stories:
            next(story, None)
        world.watch.look()

    def note(name, act):
        ran.add(name)
        return act()

    with release("old"):
        step()
    migrating()
    world.point = note
    for which, later in zip(releases, LATER.values(), strict=True):
        with release(which):
            step()
        world.clock.advance(later)
    with release(by["ends"]):
        while world.worker.work_on("work", [], lambda: 300):
            world.clock.advance(timedelta(minutes=1))
        engine.clean_up(removers=REMOVERS)
        world.until_quiet()
        step()
    assert not any(story.gi_frame for story in stories)  # each has been told to its end
    assert work(engine) == "nothing"
    missing = (CHANGED | ADDED if set(releases) == {"new"} else CHANGED) - ran
    assert not missing, f"changed since the release before, and run in no story: {sorted(missing)}"
    figures["orders"] = 1


@pytest.mark.parametrize("which", ["old", "new"])
@pytest.mark.parametrize("deployed", [False, True])
def test_retention_prunes_the_same_before_and_after(installation, which, deployed):
    """Old code that is met by what comes after the deployment is slower there, no more."""
    world, migrating = installation
    engine = world.engine
    with release("old"):
        engine.accept("tour", Parcel(name="a"))
        engine.work_on("work", [], lambda: 300)
    migrating(deployed=deployed)
    world.clock.advance("31 days")
    engine.accept("tour", Parcel(name="b"))
    with release(which):
        counts = engine.clean_up(removers={})
    assert counts == {"pruned_events": 5, "pruned_jobs": 1}


def test_the_answer_that_a_key_keeps_is_of_its_own_job(installation):
    """Today's release kept a first job's failure; the one before had the request done anew, and purged that."""
    world, migrating = installation
    engine, key = world.engine, Idempotency(principal=b"p", route="POST /tours", key=b"1", body=b"b")
    migrating()

    def ask():
        return engine.once(key, lambda tx: engine.accept("tour", Parcel(name="asked"), tx=tx).job).id

    jobs = []
    for which in ("new", "old"):
        with release(which):
            jobs.append(ask())
            engine.cancel(jobs[-1])
            engine.purge(jobs[-1])
    assert ask() not in jobs
