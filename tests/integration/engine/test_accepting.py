"""Accepting: one unfinished job per conflict key, and what a second caller gets."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier, Event, Thread

import pytest
from psycopg.types.json import Jsonb

from chalicelib.db import Database
from chalicelib.engine import Advance, Engine, PermanentFailure, SubjectBusy
from chalicelib.engine.lease import sql
from tests import toy
from tests.toy import Letter, Parcel, behaviour, kinds, take, work


def active(engine, key="parcel:a"):
    return engine.db.run("select id from engine.job where conflict_key = %(key)s and finished_at is null", key=key)


@pytest.mark.parametrize("round", range(3))
def test_T09_callers_that_race_a_finish_all_get_a_job_and_one_is_active(engine, dsn, settings, queues, round):
    first = engine.accept("delivery", Parcel(name="a")).job.id
    leased = take(engine, first)
    start, over = Barrier(34), Event()
    most = []

    def call(number):
        database = Database(dsn)
        theirs = Engine(database, toy.PIPELINES, settings, queues)
        database.one("select 1")
        start.wait()
        got = theirs.accept("delivery", Parcel(name="a", revision=1 + number % 2)).job.id
        database.close()
        return got

    def watch():
        database = Database(dsn)
        database.one("select 1")
        start.wait()
        while not over.is_set():
            most.append(database.one("select count(*) from engine.job where finished_at is null")["count"])
        database.close()

    watcher = Thread(target=watch)
    watcher.start()
    with ThreadPoolExecutor(32) as pool:
        got = [pool.submit(call, number) for number in range(32)]
        start.wait()
        leased.complete([], {})
        ids = {future.result() for future in got}
    over.set()
    watcher.join()

    assert max(most) <= 1
    assert len(active(engine)) <= 1
    assert all(engine.job(job) for job in ids)
    assert len(ids - {first}) <= 1


WANTED = {
    "pipeline": "delivery",
    "queue": "work",
    "conflict_key": "parcel:a",
    "order_key": None,
    "subject": Jsonb({}),
    "request": None,
    "schedule": None,
    "queue_budget": timedelta(1),
    "run_budget": timedelta(1),
    "wakeup_lost": timedelta(1),
}


def test_T10_the_partial_index_is_the_arbiter(database):
    plan = database.run("explain " + sql.accept_job, **WANTED)
    assert any("Conflict Arbiter Indexes: job_conflict_key" in line["QUERY PLAN"] for line in plan)


def test_who_has_ended_holds_its_key_no_more(engine):
    assert work(engine, engine.accept("delivery", Parcel(name="a")).job.id) == "finished"
    assert engine.db.one(sql.accept_job, **WANTED)  # by itself: accept() would ask again for ever


def test_a_second_caller_may_have_the_first_ones_job(engine, queues):
    first = engine.accept("delivery", Parcel(name="a"))
    second = engine.accept("delivery", Parcel(name="a"))
    assert (first.created, second.created) == (True, False)
    assert second.job.id == first.job.id
    assert len(queues.sent) == 1
    work(engine, first.job.id)
    assert active(engine) == []


def test_another_pipeline_on_the_same_subject_is_refused(engine):
    active = engine.accept("delivery", Parcel(name="a")).job.id
    with pytest.raises(SubjectBusy) as refused:
        engine.accept("recall", Parcel(name="a"))
    assert (refused.value.active, refused.value.pipeline, refused.value.code) == (active, "delivery", "subject_busy")


def test_so_is_a_second_one_of_a_pipeline_that_does_not_coalesce(engine):
    engine.accept("recall", Parcel(name="a"))
    with pytest.raises(SubjectBusy):
        engine.accept("recall", Parcel(name="a"))
    with pytest.raises(SubjectBusy):
        engine.accept("delivery", Parcel(name="a"))


def test_pipelines_without_a_conflict_key_take_any_number(engine):
    jobs = {engine.accept("post", Parcel(name="a"), request=Letter(text="x")).job.id for _ in range(3)}
    assert len(jobs) == 3


def fail(leased):
    raise PermanentFailure("source_denied")


ENDS = {
    "finished": lambda engine, clock, job: work(engine, job),
    "failed": lambda engine, clock, job: (behaviour.update(PACK=fail), work(engine, job)),
    "cancelled": lambda engine, clock, job: engine.cancel(job),
    "past its deadline": lambda engine, clock, job: (clock.advance("31 h"), engine.recover()),
    "out of attempts": lambda engine, clock, job: (
        engine.db.run("update engine.job set attempts = 2"), take(engine, job), clock.advance("6 min"),
        engine.recover(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_a_trigger_for_something_newer_gets_a_job_of_its_own_when_the_active_one_ends(engine, clock, queues, end):
    first = engine.accept("delivery", Parcel(name="a", revision=1)).job.id
    for revision in (2, 3, 3, 1):
        again = engine.accept("delivery", Parcel(name="a", revision=revision))
        assert (again.job.id, again.created) == (first, False)

    ENDS[end](engine, clock, first)

    [follow_up] = active(engine)
    job = engine.job(follow_up["id"])
    assert job.id != first
    assert (job.subject, job.state) == (Parcel(name="a", revision=3).model_dump(), "REQUESTED")
    assert job.deadline_at == clock.now() + timedelta(hours=30)
    assert engine.history(job.id)[0]["details"] == {"follows": str(first)}
    engine.relay()
    assert queues.of(job.id) == [0]
    behaviour.clear()
    assert work(engine, job.id) == "finished"
    assert active(engine) == []


PLAIN, INSURED = Parcel(name="a"), Parcel(name="a", insured=True)
NEWER, NEWER_INSURED = Parcel(name="a", revision=2), Parcel(name="a", revision=2, insured=True)


@pytest.mark.parametrize(
    ("at_work", "asked", "follows"),
    [
        (PLAIN, [INSURED, NEWER], NEWER_INSURED),
        (PLAIN, [INSURED, NEWER, Parcel(name="a", revision=3)], Parcel(name="a", revision=3, insured=True)),
        (PLAIN, [NEWER, NEWER_INSURED], NEWER_INSURED),
        (PLAIN, [INSURED], INSURED),
        (PLAIN, [INSURED, PLAIN], INSURED),  # the second is what is at work
        (INSURED, [PLAIN], None),  # what is at work says that and more
        (INSURED, [PLAIN, INSURED], None),
        (INSURED, [NEWER], NEWER),  # what is at work answers for itself
        (INSURED, [NEWER_INSURED, PLAIN], NEWER_INSURED),
    ],
)
def test_a_follow_up_says_what_stays_true_of_all_that_it_stands_for(engine, at_work, asked, follows):
    first = engine.accept("delivery", at_work).job.id
    other = engine.accept("delivery", Parcel(name="b")).job.id
    for subject in asked:
        again = engine.accept("delivery", subject)
        assert (again.job.id, again.created) == (first, False)
    assert engine.job(first).subject == at_work.model_dump()

    engine.cancel(first)
    engine.cancel(other)

    assert active(engine, "parcel:b") == []
    assert [engine.job(job["id"]).subject for job in active(engine)] == ([follows.model_dump()] if follows else [])


def test_a_caller_whose_active_job_ends_between_two_statements_tries_again(lossy, monkeypatch):
    first = lossy.accept("recall", Parcel(name="a")).job.id
    one, done = lossy.db.one, []

    def ends_in_between(statement, /, **params):
        row = one(statement, **params)
        if statement == sql.accept_job and row is None and not done:
            done.append(lossy.cancel(first))
        return row

    monkeypatch.setattr(lossy.db, "one", ends_in_between)
    assert lossy.accept("recall", Parcel(name="a")).created
    assert done == ["cancelled"]


def test_a_job_accepted_in_the_callers_transaction_is_committed_with_it_and_sent_later(engine, queues):
    with engine.db.transaction() as tx:
        job = engine.accept("delivery", Parcel(name="a"), tx=tx).job.id
        assert queues.sent == []
    with pytest.raises(ZeroDivisionError), engine.db.transaction() as tx:
        raise ZeroDivisionError(engine.accept("delivery", Parcel(name="b"), tx=tx))
    assert active(engine, "parcel:b") == []
    assert engine.relay(inline_job=job) == 1


def test_the_active_job_of_a_subject_is_found(engine):
    job = engine.accept("delivery", Parcel(name="a")).job
    assert engine.find("parcel:a") == job
    assert engine.find("parcel:a", "delivery") == job
    assert engine.find("parcel:a", "recall") is None
    assert engine.find("parcel:b") is None
    assert work(engine, job.id) == "finished"
    assert engine.find("parcel:a") is None


def test_jobs_are_listed_newest_first_in_pages(engine):
    ids = [engine.accept("delivery", Parcel(name=name)).job.id for name in "abc"]
    work(engine, ids[0])
    take(engine, ids[1])
    assert [job.id for job in engine.jobs()] == ids[::-1]
    assert [job.id for job in engine.jobs(limit=2)] == [ids[2], ids[1]]
    assert [job.id for job in engine.jobs(after=ids[1])] == [ids[0]]
    for status, job in zip(("succeeded", "running", "queued"), ids, strict=True):
        assert [found.id for found in engine.jobs(status=status)] == [job]
    assert engine.jobs(pipeline="recall") == engine.jobs(status="failed") == []


def test_a_second_trigger_for_the_same_thing_is_in_the_history(engine):
    job = engine.accept("delivery", Parcel(name="a")).job.id
    behaviour["PACK"] = lambda leased: (engine.accept("delivery", Parcel(name="a")), Advance())[1]
    work(engine, job)
    assert kinds(engine, job) == ["accepted", "claimed", "asked_again", "advanced", "finished"]


def test_who_asks_again_gets_the_active_job_and_not_one_that_has_ended(engine):
    ended = engine.accept("delivery", Parcel(name="a")).job.id
    assert work(engine, ended) == "finished"
    active = engine.accept("delivery", Parcel(name="a"))
    again = engine.accept("delivery", Parcel(name="a"))
    assert (again.created, again.job.id) == (False, active.job.id)


@pytest.mark.parametrize("wins", ["the cancellation", "the finish"])
def test_who_asks_after_a_cancellation_has_a_job_of_their_own_when_that_one_ends(engine, wins):
    cancelled = engine.accept("delivery", Parcel(name="a")).job.id
    leased = take(engine, cancelled)
    engine.cancel(cancelled)
    again = engine.accept("delivery", Parcel(name="a"))
    assert (again.created, again.job.id, again.job.follow_up) == (False, cancelled, True)
    if wins == "the cancellation":
        leased.fail("cancelled", {})
    else:
        leased.complete([], {})
    assert engine.find("parcel:a").subject == Parcel(name="a").model_dump()
