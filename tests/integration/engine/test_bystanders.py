"""Whatever is done to one job, every other one stays as it is: in the table, its outbox, its ledger, its history."""

import pytest

from chalicelib.engine import Advance, PermanentFailure, Wait
from chalicelib.engine.lease import sql
from tests.toy import Parcel, behaviour, take, work

ROWS = {
    "job": "select * from engine.job where id <> %(job)s order by id",
    "outbox": "select * from engine.outbox where job_id <> %(job)s order by job_id",
    "ledger": "select * from engine.ledger where job_id <> %(job)s order by id",
    "job_event": "select * from engine.job_event where job_id <> %(job)s order by id",
    "failure": "select * from engine.failure where job_id <> %(job)s order by job_id",
}


def notes(end):
    def step(leased):
        kept = leased.note("s3_object", {"key": f"{leased.state}, kept"})
        leased.note("s3_object", {"key": f"{leased.state}, scratch"})
        return end(leased, kept)

    return step


def fails(leased, kept):
    raise PermanentFailure("source_denied")


@pytest.fixture
def others(engine, queues):
    """One job of each sort: queued, between two steps, waiting, owned, finished, failed; all have written something."""

    def a(name):
        return engine.accept("tour", Parcel(name=name)).job.id

    queues.away = True  # their wake-ups are owed
    queued = a("queued")
    behaviour["LOAD"] = notes(lambda leased, kept: Advance(keep=[kept]))
    behaviour["DRIVE"] = notes(
        lambda leased, kept: Wait(60) if leased.subject.name == "waits" else Advance(keep=[kept])
    )
    behaviour["UNLOAD"] = notes(lambda leased, kept: Advance(keep=[kept]))
    assert work(engine, a("waits")) == "waiting"
    assert work(engine, a("ends")) == "finished"
    behaviour["LOAD"] = notes(fails)
    assert work(engine, a("fails")) == "failed"
    owned = take(engine, a("owned"))
    owned.note("s3_object", {"key": "c"})
    owned.save({"page": 1})
    behaviour.clear()
    assert engine.job(queued).status == "queued"
    return owned


def step_that(act):
    def do(engine, clock, job):
        act(take(engine, job))

    return do


def lost(engine, clock, job):
    leased = take(engine, job)
    leased.note("s3_object", {"key": "a"})
    engine.db.run("update engine.job set locked_until = engine.clock() where id = %(job)s", job=job)
    engine.recover()


def overdue(engine, clock, job, changes):
    engine.db.run(f"update engine.job set locked_until = engine.clock(), {changes} where id = %(job)s", job=job)
    engine.recover()


def unrecoverable(engine, clock, job):
    take(engine, job).note("s3_object", {"key": "a"})
    engine.db.run("update engine.job set locked_until = engine.clock() where id = %(job)s", job=job)
    engine.db.run(sql.fail_unrecoverable_job, job_id=job)


def purged(engine, clock, job):
    engine.cancel(job)
    engine.purge(job)


ACTS = {
    "it is claimed": lambda engine, clock, job: take(engine, job),
    "it beats": step_that(lambda leased: leased.heartbeat(force=True, records=7)),
    "it saves": step_that(lambda leased: leased.save({"page": 9})),
    "it notes": step_that(lambda leased: leased.note("s3_object", {"key": "a"})),
    "it advances": step_that(lambda leased: leased.advance("DRIVE", [], {"x": 1}, hand_over=False)),
    "it is handed over": step_that(lambda leased: leased.advance("DRIVE", [], {}, hand_over=True)),
    "it waits": step_that(lambda leased: leased.wait(60, None)),
    "it sits out": step_that(lambda leased: leased.sit_out("source_unreachable", {})),
    "it retries": step_that(lambda leased: leased.retry("internal_error", {})),
    "it fails": step_that(lambda leased: leased.fail("internal_error", {})),
    "it finishes": step_that(lambda leased: leased.complete([], {})),
    "it is cancelled": lambda engine, clock, job: engine.cancel(job),
    "its owner is told to cancel": lambda engine, clock, job: (take(engine, job), engine.cancel(job)),
    "it is discarded": lambda engine, clock, job: engine.discard(job),
    "its worker is lost": lost,
    "its wake-up is lost": lambda engine, clock, job: overdue(engine, clock, job, "wake_ups = 0"),
    "its deadline passes": lambda engine, clock, job: overdue(engine, clock, job, "deadline_at = engine.clock()"),
    "it can't be recovered": unrecoverable,
    "its failure is purged": purged,
}


@pytest.mark.parametrize("act", ACTS)
def test_nobody_else_notices_when(engine, clock, queues, others, act):
    job = engine.accept("tour", Parcel(name="mine")).job.id
    before = rows(engine, job)
    assert all(before.values())

    ACTS[act](engine, clock, job)

    assert rows(engine, job) == before
    others.heartbeat(force=True)


def test_nobody_else_notices_when_a_pause_ends(engine, clock, others):
    job = engine.accept("delivery", Parcel(name="mine")).job
    engine.pause("delivery")
    clock.advance("1 s")
    before = rows(engine, job.id)

    engine.resume("delivery")

    assert rows(engine, job.id) == before
    assert engine.job(job.id).deadline_at > job.deadline_at


def rows(engine, job):
    return {table: engine.db.run(statement, job=job) for table, statement in ROWS.items()}


def test_a_failure_that_is_requeued_leaves_the_others_as_they_are(engine, others):
    [other] = engine.failures()
    job = engine.accept("tour", Parcel(name="mine")).job.id
    engine.cancel(job)

    assert engine.requeue(job).created

    assert engine.failure(other.id) == other


def test_only_what_a_job_wrote_is_discarded_once_and_not_while_it_runs(engine, clock, others):
    engine.db.run(sql.discard_job, job_id=others.id)
    assert [row["status"] for row in ledger(engine, others.id)] == ["pending"]

    [failed] = engine.failures()
    clock.advance("1 min")
    before = ledger(engine, failed.id)
    assert engine.discard(failed.id)
    assert ledger(engine, failed.id) == before  # garbage since a minute, and tried when it is its turn


def ledger(engine, job):
    return engine.db.run("select * from engine.ledger where job_id = %(job)s order by id", job=job)
