"""Two at one row at the same moment: who comes second sees what the first one did, or waits for it."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import pytest
from psycopg.types.json import Jsonb

from chalicelib.db import Database
from chalicelib.engine import Cadence, Cancelled, Engine, Idempotency, LeaseLost, Outcome
from chalicelib.engine.lease import sql
from tests import toy
from tests.integration.engine.test_leases import STALE_WRITES
from tests.toy import Parcel, kinds, take, work


@pytest.fixture
def meanwhile(admin_database_dsn):
    """Start something that has to wait for a lock; returns once it waits."""
    watcher = Database(admin_database_dsn)
    with ThreadPoolExecutor(1) as pool:

        def start(act):
            future = pool.submit(act)
            while not watcher.one(
                "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
            ):
                assert not future.done(), "it did not wait"
            return future

        yield start
    watcher.close()


@pytest.fixture
def job(engine):
    return engine.accept("delivery", Parcel(name="a")).job.id


def steal(tx, job):
    """What a claim does after a recovery, in one go: the lock, the new fence; the lease is not even over."""
    tx.run("select from engine.job where id = %(job)s for update", job=job)
    tx.run("update engine.job set claim_id = engine.next_claim(), lease_owner = uuidv7() where id = %(job)s", job=job)


@pytest.mark.parametrize("act", STALE_WRITES)
def test_T01_a_claim_that_is_taken_away_at_this_moment_is_waited_for_and_then_lost(
    engine, database, other, meanwhile, job, act
):
    stale = take(engine, job)

    def write():
        with database.transaction() as tx:
            STALE_WRITES[act](stale, tx)

    with other.transaction() as tx:
        steal(tx, job)
        written = meanwhile(write)
    with pytest.raises(LeaseLost):
        written.result()
    assert engine.job(job).state == "PACK"
    assert engine.job(job).claim_id != stale.claim_id
    assert engine.job(job).claim_id is not None
    assert database.run("select * from engine.ledger") == []
    assert [event["kind"] for event in engine.history(job)] == ["accepted", "claimed"]


@pytest.mark.parametrize("wanted", ["the job", "any"])
def test_an_ask_that_is_repeated_while_its_claim_is_taken_away_gets_nothing(engine, other, job, wanted, meanwhile):
    ask, lease = uuid4(), timedelta(seconds=60)
    engine.claim("work", job=job, ask=ask, lease=lease)
    with other.transaction() as tx:
        steal(tx, job)
        again = meanwhile(lambda: engine.claim("work", job=job if wanted == "the job" else None, ask=ask, lease=lease))
    assert again.result() is None


def test_an_ask_that_is_repeated_while_its_first_try_commits_gets_that_claim(
    engine, clock, settings, queues, other, job, meanwhile
):
    """The first reply was lost, and its COMMIT is on its way: the second one takes another job with the same ask."""
    clock.advance("1 s")
    second = engine.accept("delivery", Parcel(name="b")).job.id
    ask, lease = uuid4(), timedelta(seconds=60)
    theirs = Engine(other, toy.PIPELINES, settings, queues)
    with other.transaction():
        first = theirs.claim("work", job=None, ask=ask, lease=lease)
        again = meanwhile(lambda: engine.claim("work", job=None, ask=ask, lease=lease))
    assert (again.result().id, again.result().claim_id) == (job, first.claim_id)
    assert engine.job(job).attempts == 1
    assert kinds(engine, second) == ["accepted"]


def test_a_row_that_somebody_changes_is_passed_over_by_who_looks_for_work(engine, clock, other, job):
    clock.advance("1 s")
    free = engine.accept("delivery", Parcel(name="b")).job.id
    with other.transaction() as tx:
        # what an UPDATE takes; whoever looked with less would wait for it, and then share the claim
        tx.run("select from engine.job where id = %(job)s for no key update", job=job)
        assert take(engine, job).id == free
        assert take(engine, job) is None


def test_a_claim_cannot_be_taken_away_while_its_owner_holds_it_and_its_heartbeat_passes(
    engine, clock, other, dsn, job, meanwhile
):
    leased = take(engine, job, seconds=60)
    with other.transaction() as tx:
        leased.hold(tx)
        leased.heartbeat(force=True)  # another connection, as a thread of the same worker would have
        clock.advance("2 min")
        assert engine.recover() == {"in_other_hands": 1, "sent": 0}
    assert engine.recover()["worker_lost"] == 1


def test_a_job_that_is_claimed_at_this_moment_is_cancelled_by_its_new_owner(engine, other, job, meanwhile):
    with other.transaction() as tx:
        tx.run("select from engine.job where id = %(job)s for update", job=job)
        cancelled = meanwhile(lambda: engine.cancel(job))
        tx.run("update engine.job set claim_id = 1, lease_owner = uuidv7(), state = 'PACK', attempts = 1")
    assert cancelled.result() is Outcome.REQUESTED
    assert engine.job(job).cancel_requested


@pytest.mark.parametrize("act", ["advances", "hands over", "waits", "sits out", "retries"])
def test_an_owner_who_gives_back_at_the_moment_of_a_cancellation_hears_of_it(
    engine, database, other, meanwhile, job, act
):
    engine.accept("delivery", Parcel(name="somebody else's"))
    leased = take(engine, job)
    with other.transaction() as tx:
        tx.run(sql.cancel_job, job_id=job, wakeup_lost=timedelta(minutes=30))
        given = meanwhile(lambda: STALE_WRITES[act](leased, None))
    with pytest.raises(Cancelled):
        given.result()
    assert engine.job(job).claim_id == leased.claim_id
    assert engine.job(job).state == "PACK"


def test_a_commit_that_is_still_on_its_way_is_waited_for_before_it_is_read_back(engine, other, job, meanwhile):
    leased = take(engine, job)
    with other.transaction() as tx:
        leased.finish(tx)
        arrived = meanwhile(lambda: leased._arrived("finished"))
    assert arrived.result()["kind"] == "finished"


def test_a_pause_ends_once_however_many_end_it(engine, clock, other, job, meanwhile):
    before = engine.job(job).deadline_at
    engine.pause("delivery")
    clock.advance("1 h")
    with other.transaction() as tx:
        tx.run(sql.end_pause, pipelines=["delivery"], early=True)
        ended = meanwhile(lambda: engine.resume("delivery"))
    assert ended.result() is False
    assert (engine.job(job).deadline_at - before).total_seconds() == 3600
    assert kinds(engine, job) == ["accepted", "pause_ended"]


@pytest.mark.parametrize(("first", "second"), [("*", "delivery"), ("delivery", "*")])
def test_two_pauses_over_one_job_that_end_at_once_count_once(engine, clock, other, job, meanwhile, first, second):
    """Neither sees that the other one has ended, and neither may leave the time to it."""
    before = engine.job(job).deadline_at
    engine.pause(first)
    clock.advance("1 h")
    engine.pause(second)
    clock.advance("2 h")
    with other.transaction() as tx:
        tx.run(sql.end_pause, pipelines=[first], early=True)
        ended = meanwhile(lambda: engine.resume(second))
    assert ended.result() is True
    assert engine.job(job).deadline_at - before == timedelta(hours=3)


def test_the_end_of_a_pause_waits_for_who_is_changing_a_job_it_moves(engine, clock, other, job, meanwhile):
    before = engine.job(job).deadline_at
    engine.pause("delivery")
    clock.advance("1 h")
    with other.transaction() as tx:
        tx.run(sql.mark_follow_up, conflict_key="parcel:a", pipeline="delivery", subject="{}", stays_true=[])
        ended = meanwhile(lambda: engine.resume("delivery"))
    assert ended.result() is True
    assert (engine.job(job).deadline_at - before).total_seconds() == 3600


def test_a_claim_that_is_older_than_the_pause_and_committed_at_its_end_keeps_its_bounds(
    engine, clock, settings, queues, other, job, meanwhile
):
    """It has seen no pause, and the pause's end doesn't see it yet."""
    with other.transaction():
        theirs = Engine(other, toy.PIPELINES, settings, queues)
        take(theirs, job)
        claimed = theirs.job(job)
        engine.pause("delivery")
        clock.advance("1 h")
        ended = meanwhile(lambda: engine.resume("delivery"))
    assert ended.result() is True
    assert engine.job(job) == claimed
    assert kinds(engine, job) == ["accepted", "claimed"]


def test_the_end_of_a_head_waits_for_who_is_taking_the_place_behind_it(engine, other, meanwhile):
    head = take(engine, engine.accept("ferry", Parcel(name="a")).job.id)
    with other.transaction() as tx:
        next = engine.accept("ferry", Parcel(name="a"), tx=tx).job.id
        ended = meanwhile(lambda: head.complete([], {}))
    ended.result()
    assert engine.job(next).waiting_for is None


def test_the_end_of_a_head_waits_for_the_cancellation_of_the_next_one(engine, other, meanwhile):
    first, second, third = (engine.accept("ferry", Parcel(name="a")).job.id for _ in range(3))
    head = take(engine, first)
    with other.transaction() as tx:
        tx.run(sql.cancel_job, job_id=second, wakeup_lost=timedelta(minutes=30))
        ended = meanwhile(lambda: head.complete([], {}))
    ended.result()
    assert engine.job(third).waiting_for is None


@pytest.mark.parametrize("ends", ["a head of another key", "who is held back"])
def test_whoever_takes_a_place_holds_up_nobody_but_the_head_of_its_key(engine, other, ends):
    jobs = {
        name: [engine.accept("ferry", Parcel(name=name)).job.id for _ in range(2)] for name in ("its key", "another")
    }
    job = jobs["another"][0] if ends == "a head of another key" else jobs["its key"][1]
    with other.transaction() as tx:
        engine.accept("ferry", Parcel(name="its key"), tx=tx)
        with engine.db.transaction() as mine:
            mine.run("set local lock_timeout = '200ms'")
            assert mine.run(sql.cancel_job, job_id=job, wakeup_lost=timedelta(minutes=30))


def test_two_operators_who_requeue_one_failure_make_one_job(engine, other, job, meanwhile):
    engine.cancel(job)
    with other.transaction() as tx:
        tx.run(sql.lock_failure, job_id=job)
        made = meanwhile(lambda: engine.requeue(job))
    assert made.result().created


@pytest.mark.parametrize(
    ("statement", "table", "after"),
    [
        ("claim_job", "job", "1 s"),
        ("claim_next_job", "job", "1 s"),
        ("take_owed", "outbox", "1 s"),
        ("take_wake_up", "outbox", "1 s"),
        ("lock_catch_up", "run where function = 'catch_up'", "1 s"),
        ("recover_job", "job", "31 min"),
        ("fail_unrecoverable_job", "job", "31 min"),
        ("take_garbage", "ledger", "31 min"),
        ("pick_due_schedule", "schedule", "1 day"),
        ("prune_events", "job_event", "31 days"),
        ("prune_jobs", "job", "31 days"),
        ("prune_keys", "idempotency", "31 days"),
    ],
)
def test_whoever_is_locked_is_passed_over_and_not_waited_for(engine, queues, clock, other, statement, table, after):
    assert work(engine, engine.accept("tour", Parcel(name="ends")).job.id) == "finished"
    fails = take(engine, engine.accept("tour", Parcel(name="fails")).job.id)
    fails.note("s3_object", {"key": "a"})
    fails.fail("internal_error", {})
    engine.set_schedule("tour", "tour", {"name": "s"}, Cadence(every="day", at="02:00", zone="UTC"))
    queues.away = True
    key = Idempotency(principal=b"p", route="POST /", key=b"k", body=b"b")
    job = engine.once(key, lambda tx: engine.accept("tour", Parcel(name="a"), tx=tx).job)
    clock.advance(after)
    parameters = {
        "job_id": job.id,
        "queue": "work",
        "ask": uuid4(),
        "lease": timedelta(seconds=60),
        "pipelines": ["tour"],
        "first_steps": Jsonb({"tour": "LOAD"}),
        "backoff": [timedelta(seconds=10), timedelta(seconds=40)],
        "wakeup_lost": timedelta(minutes=30),
        "retention": timedelta(days=30),
        "passed": [],
        "paused": [],
    }
    with other.transaction() as tx:
        tx.run(f"select from engine.{table} for update")
        with engine.db.transaction() as mine:
            mine.run("set local lock_timeout = '200ms'")
            assert mine.run(getattr(sql, statement), **parameters) == []
    assert engine.db.run(getattr(sql, statement), **parameters)
