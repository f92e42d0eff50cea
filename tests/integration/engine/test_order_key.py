"""Jobs of one order key run one at a time, in the order in which they were accepted."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import psycopg
import pytest

from chalicelib.db import Database
from chalicelib.engine import Engine, Outcome, PermanentFailure, Wait
from tests import toy
from tests.toy import Parcel, behaviour, kinds, take, work


@pytest.fixture
def line(engine):
    return [engine.accept("ferry", Parcel(name="a", revision=n)).job.id for n in range(3)]


def shipped(engine, jobs):
    return [engine.job(job).status for job in jobs]


def test_a_job_is_claimed_only_when_no_older_one_of_its_key_is_unfinished(engine, line):
    first, second, third = line
    assert take(engine, third) is not None  # the wake-up is a hint: what it gets is the oldest due one
    assert engine.job(first).claim_id is not None
    assert [engine.job(job).claim_id for job in (second, third)] == [None, None]
    assert take(engine, second) is None
    assert take(engine) is None
    waiting = engine.job(second).waiting_for
    assert (waiting.code, waiting.until) == ("earlier_job", None)
    other = engine.accept("ferry", Parcel(name="b")).job.id
    assert take(engine, other).id == other


def test_each_end_releases_the_next_and_wakes_it(engine, queues, line):
    first, second, third = line
    assert [len(queues.of(job)) for job in line] == [1, 0, 0]  # nobody wakes what may not be claimed
    assert work(engine, first) == "finished"
    assert [len(queues.of(job)) for job in line] == [1, 1, 0]
    assert engine.job(second).waiting_for is None

    def fails(leased):
        raise PermanentFailure("source_denied")

    behaviour["BOARD"] = fails
    assert work(engine, second) == "failed"
    behaviour.clear()
    assert [len(queues.of(job)) for job in line] == [1, 1, 1]
    assert work(engine, third) == "finished"
    assert kinds(engine, third) == ["accepted", "released", "claimed", "finished"]
    last = engine.accept("ferry", Parcel(name="a")).job.id
    assert engine.job(last).waiting_for is None
    assert work(engine, last) == "finished"


def test_the_place_is_kept_through_waits_retries_and_lost_workers(engine, clock, line):
    first, second, _ = line
    behaviour["BOARD"] = lambda leased: Wait(60)
    assert work(engine, first) == "waiting"
    assert work(engine, second) == "nothing"
    clock.advance("61 s")
    behaviour["BOARD"] = toy.crash
    assert work(engine) == "crashed"
    clock.advance("6 min")
    engine.recover()
    assert work(engine, second) == "nothing"  # the first one backs off
    behaviour.clear()
    clock.advance("11 s")
    assert work(engine, first) == "finished"
    assert work(engine, second) == "finished"


def test_the_queue_budget_starts_when_it_is_the_job_s_turn(engine, clock, line):
    """Held back for two days: recovery sets the deadline anew instead of failing it."""
    first, second, third = line
    accepted = engine.job(second).accepted_at
    for _ in range(48):
        behaviour["BOARD"] = lambda leased: Wait(3000)
        work(engine, first)
        clock.advance("1 hour")
        engine.recover()
        if engine.job(first) is None:
            break
    assert engine.failure(first).code == "deadline_exceeded"  # its own deadline stands
    behaviour.clear()
    assert engine.job(second).waiting_for is None
    assert engine.job(second).deadline_at >= accepted + timedelta(hours=30)
    assert "held_back" in kinds(engine, third)
    assert engine.failure(third) is None
    clock.advance("10 min")
    assert work(engine, second) == "finished"
    assert engine.job(third).deadline_at - clock.now() == timedelta(hours=30)
    assert work(engine, third) == "finished"


def test_without_recovery_for_longer_than_the_budgets_nobody_fails_who_was_held_back(engine, clock, line):
    first, second, third = line
    clock.advance("31 hours")
    engine.recover()
    assert engine.failure(first).code == "deadline_exceeded"
    for job in (second, third):
        assert engine.job(job).deadline_at == clock.now() + timedelta(hours=30)
    assert engine.job(second).waiting_for is None
    assert engine.job(third).waiting_for.code == "earlier_job"


def test_whoever_is_held_back_can_be_cancelled_and_holds_nobody(engine, line):
    first, second, third = line
    assert engine.cancel(second) is Outcome.CANCELLED
    assert engine.job(third).waiting_for.code == "earlier_job"
    assert engine.cancel(first) is Outcome.CANCELLED
    assert work(engine, third) == "finished"


def test_an_end_releases_the_next_of_its_own_key(engine, line):
    first, second, third = line
    head, next = (engine.accept("ferry", Parcel(name="b")).job.id for _ in range(2))
    engine.cancel(second)
    engine.cancel(first)
    assert [engine.job(job).waiting_for for job in (third, head)] == [None, None]
    assert engine.job(next).waiting_for.code == "earlier_job"


def test_a_head_that_went_without_a_word_is_noticed_by_recovery_and_the_oldest_goes_first(
    engine, clock, line, admin_database_dsn
):
    engine.accept("crawl", Parcel(name="c"))  # neither somebody else nor who has ended is their head
    assert work(engine, line[0]) == "finished"
    first, second, third = *line[1:], engine.accept("ferry", Parcel(name="a")).job.id
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("delete from engine.job where id = %s", [first])
        admin.execute("update engine.job set locked_until = locked_until - interval '1 min' where id = %s", [third])
    clock.advance("29 min")
    clock.advance("30 s")
    engine.recover()  # of the third only
    assert engine.job(second).waiting_for is None
    assert engine.job(third).waiting_for.code == "earlier_job"
    assert work(engine, third) == "finished"
    assert engine.job(second).status == "succeeded"


def test_a_pause_holds_them_and_its_end_wakes_only_the_head(engine, clock, queues, line):
    first, second, _ = line
    before = engine.job(second).deadline_at
    engine.pause("ferry", hours=2)
    clock.advance("2 hours")
    engine.recover()
    assert engine.job(second).deadline_at - before == timedelta(hours=2)
    assert [len(queues.of(job)) for job in (first, second)] == [2, 0]
    assert work(engine, first) == "finished"


def test_places_are_taken_in_the_order_of_commits(engine, dsn, settings, queues, clock):
    """An acceptance that waits in its transaction keeps the place, and whoever comes meanwhile waits behind it."""
    other = Database(dsn)
    second = Engine(other, toy.PIPELINES, settings, queues, monotonic=clock.monotonic, sleep=clock.sleep)
    with ThreadPoolExecutor(1) as pool:
        with engine.db.transaction() as tx:
            early = engine.accept("ferry", Parcel(name="a"), tx=tx).job.id
            late = pool.submit(second.accept, "ferry", Parcel(name="a"))
        late = late.result(timeout=10).job.id
    assert engine.job(early).waiting_for is None
    assert engine.job(late).waiting_for.code == "earlier_job"
    other.close()
