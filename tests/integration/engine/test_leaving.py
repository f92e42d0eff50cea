"""Things that are made before there is a job for them: an upload, which waits for its load."""

from datetime import timedelta
from uuid import uuid4

import pytest
from psycopg import Rollback

from chalicelib.engine import LedgerRow
from tests.toy import Letter, Parcel, behaviour, crash, work

REMOVED: list[LedgerRow] = []
REMOVERS = {"parcel": "tests.integration.engine.test_leaving:remove"}
LASTS = timedelta(hours=24)


def remove(row: LedgerRow) -> None:
    REMOVED.append(row)


@pytest.fixture(autouse=True)
def nothing_removed():
    REMOVED.clear()


def left(engine):
    """A thing that nobody has taken so far."""
    thing = uuid4()
    with engine.db.transaction() as tx:
        engine.leave(tx, thing, "parcel", {"key": "k"}, LASTS)
    return thing


def taken(engine, thing, pipeline="post"):
    """A job that was accepted with the thing; whether it was still there."""
    with engine.db.transaction() as tx:
        request = Letter(text="x") if pipeline == "post" else None
        job = engine.accept(pipeline, Parcel(name="p"), request=request, tx=tx).job.id
        return job, engine.take_over(tx, thing, job)


def ledger(engine):
    return [(row["job_id"], row["status"]) for row in engine.db.run("select job_id, status from engine.ledger")]


def test_what_nobody_takes_is_removed_when_its_time_is_over_and_not_before(engine, clock):
    thing = left(engine)
    clock.advance("23 h")
    assert engine.clean_up(removers=REMOVERS) == {}
    clock.advance("1 h")
    assert engine.clean_up(removers=REMOVERS) == {"removed": 1}

    assert [(row.job_id, row.kind, row.locator) for row in REMOVED] == [(thing, "parcel", {"key": "k"})]


def test_a_job_takes_it_over_in_the_transaction_that_accepts_it_and_only_once(engine, clock):
    thing = left(engine)
    job, there = taken(engine, thing)
    assert there
    assert ledger(engine) == [(job, "pending")]
    clock.advance("25 h")

    assert engine.clean_up(removers=REMOVERS) == {}
    assert taken(engine, thing)[1] is False


def test_where_the_job_is_not_accepted_it_stays_as_it_was(engine):
    thing = left(engine)
    with engine.db.transaction() as tx:
        engine.take_over(tx, thing, engine.accept("tour", Parcel(name="p"), tx=tx).job.id)
        raise Rollback

    assert ledger(engine) == [(thing, "garbage")]


@pytest.mark.parametrize("end", ["finished", "cancelled", "exhausted"])
def test_the_statement_that_ends_the_job_makes_it_garbage(engine, clock, end):
    job, _ = taken(engine, left(engine))
    if end == "cancelled":
        engine.cancel(job)
    elif end == "finished":
        assert work(engine, job) == "finished"
    else:
        behaviour["READ"] = crash
        for _ in range(6):
            work(engine, job)
            clock.advance("6 min")
            engine.recover()
    assert engine.status(job).status == ("succeeded" if end == "finished" else "failed")

    assert ledger(engine) == [(job, "garbage")]
    assert engine.clean_up(removers=REMOVERS) == {"removed": 1}


def test_a_wait_and_a_lost_worker_leave_it_with_its_job(engine, clock):
    job, _ = taken(engine, left(engine))
    behaviour["READ"] = crash
    work(engine, job)
    clock.advance("6 min")
    engine.recover()

    assert ledger(engine) == [(job, "pending")]


def test_what_cleanup_has_begun_to_remove_is_not_taken(engine, clock):
    removed, due = left(engine), left(engine)
    engine.db.run(
        "update engine.ledger set removed_at = engine.clock(), next_try_at = engine.clock() + interval '15 min'"
        " where job_id = %(thing)s",
        thing=removed,
    )
    assert taken(engine, removed)[1] is False
    clock.advance("24 h")
    assert taken(engine, due)[1] is False


def test_nothing_but_what_was_left_is_taken(engine):
    thing = left(engine)
    other, _ = taken(engine, thing)
    assert taken(engine, other)[1] is False
    assert taken(engine, uuid4())[1] is False
