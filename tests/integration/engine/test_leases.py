"""Who owns a job, and what a worker that doesn't own it any more can do: nothing."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from uuid import uuid4

import psycopg
import pytest

from chalicelib.db import Database, DatabaseAway
from chalicelib.engine import Advance, Cancelled, Engine, Finished, LeaseLost, Wait
from chalicelib.engine.lease import sql
from tests import toy
from tests.toy import Letter, Parcel, behaviour, kinds, take, work


@pytest.fixture
def job(engine):
    return engine.accept("delivery", Parcel(name="a")).job.id


def lose(engine, clock, job):
    """The job's worker has vanished, and recovery has noticed."""
    clock.advance("6 min")
    engine.recover()
    clock.advance("1 min")


STALE_WRITES = {
    "completes": lambda stale, tx: stale.complete([], {}),
    "completes in a transaction": lambda stale, tx: stale.finish(tx),
    "holds": lambda stale, tx: stale.hold(tx),
    "fails": lambda stale, tx: stale.fail("internal_error", {}),
    "retries": lambda stale, tx: stale.retry("internal_error", {}),
    "checkpoints": lambda stale, tx: stale.save({"page": 1}),
    "registers a file": lambda stale, tx: stale.note("s3_object", {"key": "a"}),
    "advances": lambda stale, tx: stale.advance("SHIP", [], {}, hand_over=False),
    "hands over": lambda stale, tx: stale.advance("SHIP", [], {}, hand_over=True),
    "waits": lambda stale, tx: stale.wait(1, None),
    "sits out": lambda stale, tx: stale.sit_out("source_unreachable", {}),
    "beats": lambda stale, tx: stale.heartbeat(force=True, records=10),
    "requires": lambda stale, tx: stale.require(400),
}


@pytest.mark.parametrize("act", STALE_WRITES)
def test_T01_a_stale_owner_changes_nothing(engine, clock, database, act):
    job = engine.accept("delivery", Parcel(name="a")).job.id
    stale = take(engine, job)
    lose(engine, clock, job)
    fresh = take(engine, job)
    fresh.save({"page": 7})
    before = database.run("select * from engine.job"), engine.history(job)

    with pytest.raises(LeaseLost), database.transaction() as tx:
        STALE_WRITES[act](stale, tx)

    assert (database.run("select * from engine.job"), engine.history(job)) == before
    assert database.run("select * from engine.ledger") == []
    fresh.heartbeat(force=True)


@pytest.mark.parametrize("act", STALE_WRITES)
def test_T01_nor_once_the_new_owner_is_done(engine, clock, database, job, act):
    stale = take(engine, job)
    lose(engine, clock, job)
    assert work(engine, job) == "finished"
    before = database.run("select * from engine.job"), engine.history(job)

    with pytest.raises(LeaseLost), database.transaction() as tx:
        STALE_WRITES[act](stale, tx)

    assert (database.run("select * from engine.job"), engine.history(job)) == before
    assert database.run("select * from engine.ledger") == []


@pytest.mark.parametrize("act", STALE_WRITES)
def test_T01_nor_in_the_moment_after_its_lease_has_ended(engine, clock, database, job, act):
    stale = take(engine, job, seconds=60)
    clock.advance("60 s")
    before = database.run("select * from engine.job")
    with pytest.raises(LeaseLost), database.transaction() as tx:
        STALE_WRITES[act](stale, tx)
    assert database.run("select * from engine.job") == before


def test_T01_the_payload_stands_for_the_new_owner(engine, clock):
    job = engine.accept("post", Parcel(name="p"), request=Letter(text="dear")).job.id
    stale = take(engine, job)
    lose(engine, clock, job)
    fresh = take(engine, job)
    with pytest.raises(LeaseLost):
        stale.complete([], {})
    assert fresh.request == Letter(text="dear")
    assert fresh.claim_id > stale.claim_id


def test_T02_a_stale_owner_cannot_keep_its_lease_alive(engine, clock, job):
    stale = take(engine, job)
    lose(engine, clock, job)
    fresh = take(engine, job)
    clock.advance("20 s")

    with pytest.raises(LeaseLost):
        stale.heartbeat(records=10)

    assert engine.job(job).locked_until == clock.now() + timedelta(minutes=5) - timedelta(seconds=20)
    assert engine.job(job).claim_id == fresh.claim_id
    assert engine.job(job).progress.records == 0


def test_T02_a_step_that_lost_its_lease_stops_before_its_next_side_effect(engine, clock, job):
    effects = []

    def pack(leased):
        lose(engine, clock, job)
        assert take(engine, job)
        leased.heartbeat(records=1)
        effects.append("too late")

    behaviour["PACK"] = pack
    assert work(engine, job) == "lost"
    assert effects == []


def test_T03_a_handler_that_kills_its_process_is_claimed_three_times_and_never_a_fourth(
    engine, clock, dsn, settings, queues, job
):
    def die(leased):
        os.kill(os.getpid(), signal.SIGKILL)

    behaviour["PACK"] = die
    deaths = 0
    for _ in range(12):
        if (child := os.fork()) == 0:
            theirs = Engine(Database(dsn), toy.PIPELINES, settings, queues)
            work(theirs, job)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        deaths += os.WIFSIGNALED(status)
        clock.advance("2 min")
        engine.recover()

    assert deaths == 3
    assert kinds(engine, job).count("claimed") == 3
    failure = engine.failure(job)
    assert (failure.code, failure.attempts, failure.details) == ("attempts_exhausted", 3, {"step": "PACK"})
    assert engine.job(job) is None


def test_T04_the_lease_lives_on_the_job_alone(engine, clock, admin_database_dsn, job):
    take(engine, job, seconds=60)
    with psycopg.connect(admin_database_dsn) as admin:
        admin.execute("truncate engine.outbox, engine.job_event, engine.ledger, engine.pause")
    clock.advance("61 s")
    assert engine.recover()["worker_lost"] == 1
    assert engine.job(job).state == "REQUESTED"


def test_T15_a_lease_has_its_full_length_however_old_the_transaction(admin_dsn, bare_template, settings, queues):
    from psycopg.conninfo import make_conninfo

    database = Database(make_conninfo(admin_dsn, dbname=bare_template))
    engine = Engine(database, toy.PIPELINES, settings, queues)
    job = engine.accept("delivery", Parcel(name="a")).job.id
    try:
        with database.transaction() as tx:
            began = tx.one("select now() as at")["at"]
            leased = take(engine, job, seconds=60)
            claimed = engine.job(job).locked_until
            leased.heartbeat(force=True)
            extended = engine.job(job).locked_until
            # On the real clock: a lease counted from now(), the transaction's start, would be equal, not longer.
            assert began + timedelta(seconds=60) < claimed < extended
    finally:
        database.run("delete from engine.job")
        database.close()


def test_T29_a_lease_never_outlives_the_invocation_the_deadline_or_the_setting(engine, clock, database, job):
    def lease_is(seconds, left):
        def pack(leased):
            assert engine.job(job).locked_until == clock.now() + timedelta(seconds=seconds)
            leased.heartbeat(force=True)
            assert engine.job(job).locked_until == clock.now() + timedelta(seconds=seconds)
            return Wait(0)

        behaviour["PACK"] = pack
        assert work(engine, job, left=left) == "waiting"

    lease_is(60, left=300)
    lease_is(42, left=42)
    lease_is(60, left=float("inf"))
    database.run("update engine.job set deadline_at = engine.clock() + '7 s', locked_until = engine.clock() + '7 s'")
    lease_is(7, left=300)


@pytest.mark.parametrize("left", [29, 0, -5, float("nan")])
def test_T29_with_too_little_time_left_nothing_is_claimed(engine, job, left):
    assert work(engine, job, left=left) == "too_late"
    assert engine.job(job).attempts == 0


def test_an_invocation_that_runs_out_of_time_cannot_extend_its_lease(engine, clock, job):
    leased = take(engine, job)
    leased._until = lambda: -3.0
    leased.heartbeat(force=True)
    assert engine.job(job).locked_until == clock.now()


def test_what_was_required_is_required_anew_after_an_advance_which_may_shorten_the_lease(engine, clock, job):
    leased = take(engine, job)
    leased._until = lambda: 900.0
    leased.require(200)
    leased.advance("SHIP", [], {}, hand_over=False)
    leased.require(150)
    assert engine.job(job).locked_until - clock.now() >= timedelta(seconds=150)


def test_the_same_ask_gets_the_same_claim_and_spends_nothing(engine, job):
    engine.accept("delivery", Parcel(name="another one that is due"))
    ask, lease = uuid4(), timedelta(seconds=60)
    for wanted in (job, None):
        first = engine.claim("work", job=wanted, ask=ask, lease=lease)
        again = engine.claim("work", job=wanted, ask=ask, lease=lease)
        assert first.claim_id == again.claim_id
        assert again.attempts == 1
    assert kinds(engine, job).count("claimed") == 1


def test_the_same_ask_after_its_lease_has_ended_gets_nothing_back(engine, clock, job):
    ask = uuid4()
    assert engine.claim("work", job=job, ask=ask, lease=timedelta(seconds=60))
    clock.advance("60 s")
    assert engine.claim("work", job=job, ask=ask, lease=timedelta(seconds=60)) is None


def test_nor_another_job_that_is_due(engine, clock, job):
    clock.advance("1 s")
    engine.accept("delivery", Parcel(name="another one"))
    ask = uuid4()
    assert engine.claim("work", job=None, ask=ask, lease=timedelta(seconds=60)).id == job
    clock.advance("60 s")
    assert engine.claim("work", job=None, ask=ask, lease=timedelta(seconds=60)) is None


def test_many_workers_that_race_for_one_job_make_one_claim(engine, dsn, settings, queues, job):
    start = Barrier(8)

    def race(_):
        database = Database(dsn)
        theirs = Engine(database, toy.PIPELINES, settings, queues)
        start.wait()
        leased = take(theirs, job)
        database.close()
        return leased and leased.claim_id

    with ThreadPoolExecutor(8) as pool:
        claims = [claim for claim in pool.map(race, range(8)) if claim]
    assert len(claims) == 1
    assert engine.job(job).attempts == 1


def test_one_asynchronous_event_delivered_three_times_never_shares_a_claim(engine, job):
    claims = []

    def pack(leased):
        claims.append(leased.claim_id)
        # The platform repeats the event, under the same invocation id, while the first delivery still runs.
        assert [work(engine, job) for _ in range(2)] == ["nothing", "nothing"]
        return Advance()

    behaviour["PACK"] = pack
    assert work(engine, job) == "finished"
    assert len(claims) == 1


def test_a_wake_up_for_a_job_that_is_not_due_works_on_the_oldest_due_one(engine, clock, job):
    clock.advance("1 s")
    other = engine.accept("delivery", Parcel(name="b")).job.id
    take(engine, job)
    assert engine.work("work", job=job, until=lambda: 300).job == other


def test_a_wake_up_is_for_its_job_though_an_older_one_is_due(engine, clock, job):
    clock.advance("1 s")
    younger = engine.accept("delivery", Parcel(name="b")).job.id
    assert engine.work("work", job=younger, until=lambda: 300).job == younger


def test_T29_no_lease_goes_past_the_deadline_whoever_gives_it(engine, clock, database, job):
    database.run("update engine.job set started_at = accepted_at, deadline_at = engine.clock() + '7 s',"
                 " locked_until = engine.clock() + '7 s'")  # fmt: skip
    end = clock.now() + timedelta(seconds=7)
    leased = take(engine)  # the oldest one that is due
    assert engine.job(job).locked_until == end
    leased.advance("SHIP", [], {}, hand_over=False)
    assert engine.job(job).locked_until == end
    leased.heartbeat(force=True)
    assert engine.job(job).locked_until == end
    leased.wait(1, None)
    assert engine.job(job).locked_until == end
    clock.advance("1 s")
    take(engine).retry("internal_error", {})
    assert engine.job(job).locked_until == end


def test_T29_nor_the_lease_of_one_that_is_handed_over_or_lost(engine, clock, database, job):
    database.run("update engine.job set started_at = accepted_at, deadline_at = engine.clock() + '7 s',"
                 " locked_until = engine.clock() + '7 s'")  # fmt: skip
    end = clock.now() + timedelta(seconds=7)
    take(engine).advance("SHIP", [], {}, hand_over=True)
    assert engine.job(job).locked_until == end
    take(engine, seconds=1)
    clock.advance("1 s")
    assert engine.recover()["worker_lost"] == 1
    assert engine.job(job).locked_until == end


def test_a_queues_worker_leaves_the_other_queues_jobs_alone(engine):
    crawl = engine.accept("crawl", Parcel(name="c")).job.id
    assert work(engine, crawl) == "nothing"
    assert work(engine, crawl, queue="fetch") == "finished"


def test_a_job_of_a_pipeline_that_this_code_does_not_know_is_left_to_who_does(engine, database, job):
    database.run("update engine.job set pipeline = 'newer'")
    assert work(engine, job) == "nothing"
    assert work(engine) == "nothing"


def test_the_minute_tick_works_on_what_is_due_until_nothing_is(engine):
    jobs = {engine.accept("delivery", Parcel(name=name)).job.id for name in "abc"}
    assert {worked.job for worked in engine.work_on("work", [], lambda: 300)} == jobs


def test_the_minute_tick_stops_when_its_time_is_nearly_up(engine):
    for name in "abc":
        engine.accept("crawl", Parcel(name=name))
    left = [300]
    behaviour["CRAWL"] = lambda leased: (left.__setitem__(0, left[0] - 150), Advance())[1]
    assert len(engine.work_on("fetch", [], lambda: left[0])) == 2


def test_wake_ups_are_worked_on_one_after_the_other(engine):
    jobs = [engine.accept("delivery", Parcel(name=name)).job.id for name in "ab"]
    assert [worked.job for worked in engine.work_on("work", jobs, lambda: 300)] == jobs


# Replies that are lost: the write has arrived, nobody heard it


def test_a_claim_whose_reply_was_lost_is_asked_for_again(lossy):
    job = lossy.accept("delivery", Parcel(name="a")).job.id
    lossy.db.replies = [sql.claim_job, sql.claim_job]
    assert work(lossy, job) == "finished"
    assert lossy.job(job).attempts == 1


def test_an_ask_without_a_reply_is_repeated_until_its_time_out_before_it_counts_as_no(lossy, clock):
    job = lossy.accept("delivery", Parcel(name="a")).job.id
    theirs = take(lossy, job)
    began = clock.now()
    lossy.db.requests = [sql.claim_job]
    assert take(lossy, job) is None
    assert clock.now() - began >= timedelta(seconds=lossy.settings.statement_timeout)
    assert lossy.job(job).claim_id == theirs.claim_id


def test_a_database_that_stays_away_is_told(lossy):
    job = lossy.accept("delivery", Parcel(name="a")).job.id
    lossy.db.requests = [sql.claim_job] * 100
    with pytest.raises(DatabaseAway):
        work(lossy, job)
    assert lossy.job(job).attempts == 0


def test_a_connection_that_died_while_the_function_slept_costs_nothing(lossy, clock):
    lossy.db.requests = [sql.read_clock]
    began = clock.now()
    assert work(lossy) == "nothing"
    lossy.db.requests = [sql.read_clock]
    lossy.recover(event_time=began)
    assert clock.now() == began


@pytest.mark.parametrize("lost", ["requests", "replies"])
@pytest.mark.parametrize(
    "statement", ["extend_lease", "save_checkpoint", "note_in_ledger", "advance_job", "finish_job"]
)
def test_every_write_of_a_worker_survives_a_lost_request_or_reply(lossy, statement, lost):
    job = lossy.accept("delivery", Parcel(name="a")).job.id

    def pack(leased):
        leased.heartbeat(force=True, records=5)
        leased.save({"page": 1})
        return Advance(keep=[leased.note("s3_object", {"key": "a"})])

    behaviour["PACK"] = pack
    setattr(lossy.db, lost, [getattr(sql, statement)])
    assert work(lossy, job) == "finished"
    assert lossy.job(job).attempts == 1
    assert kinds(lossy, job) == ["accepted", "claimed", "advanced", "finished"]
    assert [row["status"] for row in lossy.db.run("select status from engine.ledger")] == ["kept"]
    assert lossy.db.replies == lossy.db.requests == []


@pytest.mark.parametrize("lost", ["requests", "replies"])
@pytest.mark.parametrize(
    ("statement", "ends", "outcome"),
    [
        ("wait_job", lambda leased: Wait(1), "waiting"),
        ("retry_job", lambda leased: 1 / 0, "retrying"),
        ("advance_job", lambda leased: (setattr(leased, "_until", lambda: 1.0), Advance())[1], "handed_over"),
    ],
)
def test_so_does_every_way_to_give_a_job_back(lossy, statement, ends, outcome, lost):
    job = lossy.accept("delivery", Parcel(name="a")).job.id
    behaviour["PACK"] = ends
    setattr(lossy.db, lost, [getattr(sql, statement)])
    assert work(lossy, job) == outcome
    assert len(kinds(lossy, job)) == 3


@pytest.mark.parametrize("lost", ["requests", "replies"])
def test_so_does_a_failure(lossy, clock, lost):
    job = lossy.accept("delivery", Parcel(name="a")).job.id
    behaviour["PACK"] = lambda leased: 1 / 0
    lossy.db.run("update engine.job set attempts = 2")
    setattr(lossy.db, lost, [sql.fail_job])
    assert work(lossy, job) == "failed"
    assert lossy.failure(job).code == "internal_error"


def test_a_commit_whose_reply_was_lost_is_read_back(lossy):
    job = lossy.accept("delivery", Parcel(name="a")).job.id

    def ship(leased):
        lossy.db.commits = 1
        with leased.transaction() as tx:
            leased.finish(tx)
        return Finished()

    behaviour["SHIP"] = ship
    assert work(lossy, job) == "finished"


def test_a_transaction_that_never_reached_its_commit_is_not_taken_for_one_that_did(lossy):
    job = lossy.accept("delivery", Parcel(name="a")).job.id

    def ship(leased):
        with leased.transaction() as tx:
            leased.finish(tx)
            raise DatabaseAway

    behaviour["SHIP"] = ship
    with pytest.raises(DatabaseAway):
        work(lossy, job)
    assert lossy.job(job).status == "running"


def test_what_an_earlier_claim_left_is_not_taken_for_the_write_that_was_lost(lossy, clock):
    job = lossy.accept("tour", Parcel(name="a")).job.id
    take(lossy, job).wait(1, None)
    clock.advance("1 s")
    leased = take(lossy, job)
    lose(lossy, clock, job)
    lossy.db.requests = [sql.wait_job]
    with pytest.raises(LeaseLost):
        leased.wait(1, None)


def test_nor_is_what_an_earlier_step_left(lossy, clock):
    job = lossy.accept("tour", Parcel(name="a")).job.id
    leased = take(lossy, job)
    leased.advance("DRIVE", [], {}, hand_over=False)
    lose(lossy, clock, job)
    lossy.db.requests = [sql.advance_job]
    with pytest.raises(LeaseLost):
        leased.advance("UNLOAD", [], {}, hand_over=False)


# Cancellation reaches the owner


def test_an_owner_hears_of_a_cancellation_at_its_next_heartbeat(engine, queues, job):
    def pack(leased):
        assert engine.cancel(job) == "requested"
        assert engine.job(job).cancel_requested
        leased.heartbeat(force=True)
        raise AssertionError("it went on")

    behaviour["PACK"] = pack
    assert work(engine, job) == "cancelled"
    assert engine.failure(job).code == "cancelled"


@pytest.mark.parametrize("ends", [lambda leased: Advance(), lambda leased: Wait(1), lambda leased: 1 / 0])
def test_or_when_it_gives_the_job_back(engine, job, ends):
    behaviour["PACK"] = lambda leased: (engine.cancel(job), ends(leased))[1]
    assert work(engine, job) == "cancelled"
    assert engine.failure(job).code == "cancelled"


def test_a_finish_that_wins_says_so(engine, job):
    behaviour["SHIP"] = lambda leased: (engine.cancel(job), Advance())[1]
    assert work(engine, job) == "finished"
    assert engine.cancel(job) == "finished"
    assert engine.job(job).state == "DELIVERED"


def test_a_cancelled_owner_that_has_lost_its_lease_says_nothing(engine, clock, job):
    def pack(leased):
        lose(engine, clock, job)
        raise Cancelled

    behaviour["PACK"] = pack
    assert work(engine, job) == "lost"
    assert engine.job(job).status == "queued"
