"""The ledger: everything a job wrote outside is either kept by name or removed, twice, for ever tried."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from chalicelib.db import Database, DatabaseAway
from chalicelib.engine import Advance, Engine, Finished, Outage, PermanentFailure
from tests import toy
from tests.toy import Parcel, behaviour, crash, kinds, take, work

REMOVERS = {"s3_object": "tests.integration.engine.test_cleanup:remove"}
removed: list = []
broken: list = []


def remove(row):
    if broken:
        raise broken[0]
    removed.append(row.locator["key"])


@pytest.fixture(autouse=True)
def nothing_removed():
    removed.clear()
    broken.clear()


@pytest.fixture
def job(engine):
    return engine.accept("delivery", Parcel(name="a")).job.id


def ledger(engine):
    rows = engine.db.run("select locator ->> 'key' as key, status from engine.ledger order by id")
    return {row["key"]: row["status"] for row in rows}


def writes(*keys, keep=None):
    """A step that writes these and keeps some."""

    def step(leased):
        ids = {key: leased.note("s3_object", {"key": key.format(attempt=leased.attempts)}) for key in keys}
        return Advance(keep=[ids[key] for key in (keys if keep is None else keep)])

    return step


def clean(engine):
    return engine.clean_up(removers=REMOVERS)


def test_T17_five_ticks_at_once_remove_each_thing_once(engine, clock, dsn, settings, queues, job):
    behaviour["PACK"] = writes(*(f"scratch {number}" for number in range(30)), keep=[])
    work(engine)
    start = Barrier(5)

    def tick(_):
        database = Database(dsn)
        theirs = Engine(database, toy.PIPELINES, settings, queues)
        start.wait()
        counts = clean(theirs)
        database.close()
        return counts.get("removed", 0)

    with ThreadPoolExecutor(5) as pool:
        assert sum(pool.map(tick, range(5))) == 30
    assert sorted(removed) == sorted(f"scratch {number}" for number in range(30))


def test_the_same_thing_noted_again_is_the_same_row(engine, job):
    leased = take(engine, job)
    assert leased.note("s3_object", {"key": "a"}) == leased.note("s3_object", {"key": "a"})
    assert leased.note("s3_object", {"key": "b"}) != leased.note("s3_upload", {"key": "b"})


def test_what_steps_keep_by_name_stays_and_the_rest_is_garbage_at_the_end(engine, job):
    behaviour["PACK"] = writes("csv", "scratch", keep=["csv"])
    seen = []

    def ship(leased):
        seen.append(ledger(engine))
        return writes("graph", "staging", keep=["graph"])(leased)

    behaviour["SHIP"] = ship
    assert work(engine, job) == "finished"
    assert seen == [{"csv": "kept", "scratch": "pending"}]
    assert ledger(engine) == {"csv": "kept", "scratch": "garbage", "graph": "kept", "staging": "garbage"}


def test_a_step_leaves_alone_what_the_steps_before_it_keep(engine):
    job = engine.accept("tour", Parcel(name="t")).job.id
    for state in ("LOAD", "DRIVE", "UNLOAD"):
        behaviour[state] = writes(state)
    assert work(engine, job) == "finished"
    assert ledger(engine) == {"LOAD": "kept", "DRIVE": "kept", "UNLOAD": "kept"}


def test_a_finish_in_a_transaction_keeps_by_name_too(engine, job):
    def ship(leased):
        kept = leased.note("s3_object", {"key": "graph"})
        leased.note("s3_object", {"key": "staging"})
        with leased.transaction() as tx:
            leased.finish(tx, keep=[kept])
        return Finished()

    behaviour["SHIP"] = ship
    work(engine, job)
    assert ledger(engine) == {"graph": "kept", "staging": "garbage"}


def test_a_step_that_runs_again_after_a_crash_keeps_what_it_names_this_time(engine, clock, job):
    behaviour["PACK"] = writes("csv-{attempt}")
    behaviour["SHIP"] = crash
    assert work(engine, job) == "crashed"
    clock.advance("2 min")
    engine.recover()
    assert ledger(engine) == {"csv-1": "kept"}  # recovery touches nothing
    clock.advance("1 min")
    behaviour.pop("SHIP")
    assert work(engine, job) == "finished"
    assert ledger(engine) == {"csv-1": "garbage", "csv-2": "kept"}


def fails(leased):
    leased.note("s3_object", {"key": "graph"})
    raise PermanentFailure("source_denied")


ENDS = {
    "it fails": lambda engine, clock, job: work(engine, job),
    "it is cancelled": lambda engine, clock, job: engine.cancel(job),
    "its deadline passes": lambda engine, clock, job: (clock.advance("31 h"), engine.recover()),
}


@pytest.mark.parametrize("end", ENDS)
def test_whatever_a_job_kept_is_garbage_when(engine, clock, job, end):
    behaviour["PACK"] = writes("csv", "json")

    def away(leased):
        raise Outage("storage_unreachable")

    behaviour["SHIP"] = away
    assert work(engine, job) == "waiting"
    assert ledger(engine) == {"csv": "kept", "json": "kept"}
    clock.advance("15 s")
    behaviour["SHIP"] = fails
    ENDS[end](engine, clock, job)
    assert engine.failure(job)
    assert set(ledger(engine).values()) == {"garbage"}


def test_garbage_is_removed_and_once_more_after_the_longest_invocation(engine, clock, job):
    behaviour["PACK"] = fails
    work(engine, job)
    assert clean(engine) == {"removed": 1}
    assert clean(engine) == {}
    clock.advance("15 min")
    assert clean(engine) == {"forgotten": 1}
    assert removed == ["graph", "graph"]
    assert ledger(engine) == {}


def test_what_cannot_be_removed_is_tried_for_ever_with_growing_pauses(engine, clock, job):
    behaviour["PACK"] = fails
    work(engine, job)
    broken.append(ConnectionError("https://user:password@storage"))
    pauses = []
    for _ in range(14):
        assert clean(engine) == {"backed_off": 1}
        [row] = engine.db.run("select next_try_at, tries from engine.ledger")
        pauses.append(row["next_try_at"] - clock.now())
        clock.set(row["next_try_at"].isoformat())
    assert pauses[:4] == [timedelta(minutes=minutes) for minutes in (1, 2, 4, 8)]
    assert pauses[-1] == timedelta(hours=6)
    broken.clear()
    assert clean(engine) == {"removed": 1}


def test_a_kind_that_nobody_removes_is_kept_in_sight(engine, job):
    behaviour["PACK"] = fails
    work(engine, job)
    assert engine.clean_up(removers={}) == {"backed_off": 1}


def test_a_cleanup_that_dies_leaves_its_piece_for_later(engine, clock, job):
    behaviour["PACK"] = fails
    work(engine, job)
    broken.append(DatabaseAway())
    with pytest.raises(DatabaseAway):
        clean(engine)
    broken.clear()
    assert clean(engine) == {}
    clock.advance("5 min")
    assert clean(engine) == {"removed": 1}


def test_what_a_finished_job_kept_can_be_discarded(engine, job):
    behaviour["PACK"] = writes("csv")
    work(engine, job)
    assert ledger(engine) == {"csv": "kept"}
    engine.accept("delivery", Parcel(name="another one, which hasn't ended"))
    assert engine.discard(job)
    assert engine.discard(job)
    assert ledger(engine) == {"csv": "garbage"}


def test_a_running_job_is_cancelled_before_it_is_discarded(engine, job):
    leased = take(engine, job)
    leased.note("s3_object", {"key": "csv"})
    assert engine.discard(job) is False
    assert ledger(engine) == {"csv": "pending"}
    leased.fail("cancelled", {})
    assert engine.discard(job)
    assert ledger(engine) == {"csv": "garbage"}


def test_retention_prunes_history_and_finished_rows_but_never_the_record_of_a_version(engine, clock, job):
    def ship(leased):
        with leased.transaction() as tx:
            leased.finish(tx, version=1)
        return Finished()

    behaviour["SHIP"] = ship
    work(engine, job)
    behaviour.clear()
    other = engine.accept("recall", Parcel(name="b")).job.id
    work(engine, other)
    clock.advance("29 days")
    young = engine.accept("recall", Parcel(name="c")).job.id
    assert clean(engine) == {}
    clock.advance("1 day 1 s")
    assert clean(engine) == {"pruned_events": 7, "pruned_jobs": 1}
    assert engine.job(job).version == 1
    assert engine.job(other) is None
    assert engine.job(young)
    assert kinds(engine, job) == []


def test_cleanup_is_bounded_by_time(engine, clock, job, monkeypatch):
    behaviour["PACK"] = lambda leased: (writes("a", "b", "c", "d")(leased), fails(leased))
    work(engine, job)
    broken.append(ValueError())
    run = engine.db.run
    monkeypatch.setattr(engine.db, "run", lambda *args, **params: (clock.advance("20 s"), run(*args, **params))[1])
    assert clean(engine) == {"backed_off": 3}


def test_each_thing_is_removed_twice(engine, clock, job):
    behaviour["PACK"] = writes("a", "b", keep=[])
    work(engine, job)
    for _ in range(2):
        clean(engine)
        assert sorted(removed) == ["a", "b"]
        removed.clear()
        clock.advance("16 min")


@pytest.mark.parametrize("outcome", ["removed", "forgotten", "backed_off"])
def test_what_a_job_takes_over_while_it_is_being_removed_is_no_garbage(engine, clock, job, outcome, monkeypatch):
    behaviour["PACK"] = writes("upload", keep=[])
    assert work(engine, job) == "finished"
    if outcome == "forgotten":
        assert clean(engine) == {"removed": 1}
        clock.advance("16 min")

    def take_over(row):
        change = "update engine.ledger set status = 'pending', next_try_at = null where id = %(id)s returning *"
        taken.extend(engine.db.run(change, id=row.id))
        if outcome == "backed_off":
            raise OSError

    taken = []
    monkeypatch.setattr(f"{__name__}.remove", take_over)
    assert clean(engine) == {outcome: 1}
    assert engine.db.run("select * from engine.ledger") == taken
