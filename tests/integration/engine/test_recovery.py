"""Recovery: whatever happens to workers, messages and rows, a job ends."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from threading import Barrier

import psycopg
import pytest

from chalicelib.db import Database, DatabaseAway, Transaction
from chalicelib.engine import ClockDisagrees, Engine, Outage, Pipeline, Step, Wait
from chalicelib.engine.lease import sql
from tests import toy
from tests.toy import Letter, Parcel, behaviour, crash, kinds, take, work


@pytest.fixture
def job(engine):
    return engine.accept("delivery", Parcel(name="a")).job.id


def until_quiet(engine, clock, *, hours=40, tick=None):
    """Minute after minute recovery runs, and, where there is one, the worker."""
    for _ in range(hours * 4):
        engine.recover()
        if tick:
            tick()
        clock.advance("15 min")


def test_an_expired_lease_goes_back_to_requested_with_back_off(engine, clock, queues, job):
    take(engine, job, seconds=60)
    clock.advance("59 s")
    assert engine.recover().get("worker_lost") is None
    clock.advance("1 s")
    assert engine.recover()["worker_lost"] == 1
    again = engine.job(job)
    assert (again.state, again.status, again.claim_id, again.attempts) == ("REQUESTED", "queued", None, 1)
    assert again.run_at == clock.now() + timedelta(seconds=10)
    assert queues.of(job) == [0, 10]
    assert engine.recover() == {"sent": 0}


def test_a_worker_lost_in_a_later_step_starts_over_without_the_results_of_the_lost_attempt(engine, clock, job):
    behaviour["PACK"] = lambda leased: toy.Advance(attempt=leased.attempts)
    behaviour["SHIP"] = crash
    assert work(engine, job) == "crashed"
    assert engine.job(job).result == {"attempt": 1}
    clock.advance("2 min")
    engine.recover()
    assert engine.job(job).result == {}
    clock.advance("1 min")
    behaviour.pop("SHIP")
    assert work(engine, job) == "finished"
    assert engine.job(job).result == {"attempt": 2}


@pytest.mark.parametrize("what_is_broken", ["the function", "the step's module", "the step's name"])
def test_a_worker_that_fails_at_import_leaves_every_job_failed_within_the_bound_and_no_payload(
    engine, clock, what_is_broken
):
    letter = engine.accept("post", Parcel(name="p"), request=Letter(text="secret")).job
    parcel = engine.accept("delivery", Parcel(name="a")).job
    run = "tests.no_such_module:step" if what_is_broken == "the step's module" else "tests.toy:no_such_function"
    broken = {
        name: Pipeline(name=name, subject=Parcel, steps=[Step("READ", run)], done="DONE", request=good.request)
        for name, good in engine.pipelines.items()
    }
    theirs = Engine(engine.db, broken, engine.settings, engine.queues, sleep=clock.sleep)
    until_quiet(
        engine,
        clock,
        tick=None if what_is_broken == "the function" else lambda: theirs.work_on("work", [], lambda: 300),
    )
    for job in (letter, parcel):
        failure = engine.failure(job.id)
        assert failure.code == ("deadline_exceeded" if what_is_broken == "the function" else "internal_error")
        assert failure.failed_at <= job.deadline_at + timedelta(minutes=15)
    assert engine.db.run("select * from engine.job") == []


@pytest.mark.parametrize(
    "away", ["source_unreachable", "storage_unreachable", "data_service_unreachable", "triple_store_unreachable"]
)
@pytest.mark.parametrize("state", ["PACK", "SHIP"])
def test_one_hour_of_an_outage_fails_no_job(engine, clock, job, away, state):
    def outage(leased):
        if clock.now() < engine.job(job).accepted_at + timedelta(hours=1):
            raise Outage(away, host="example.org")
        return toy.Advance()

    behaviour[state] = outage
    for _ in range(70):
        engine.recover()
        work(engine)
        clock.advance("1 min")
    assert engine.job(job).status == "succeeded"
    assert engine.job(job).attempts == 1


def test_beyond_the_budget_the_failure_names_what_was_away(engine, clock, job):
    def outage(leased):
        raise Outage("triple_store_unreachable", host="store.example.org")

    behaviour["PACK"] = outage
    began = clock.now()
    until_quiet(engine, clock, hours=7, tick=lambda: work(engine))
    failure = engine.failure(job)
    assert (failure.code, failure.attempts) == ("deadline_exceeded", 1)
    assert failure.details == {
        "step": "PACK",
        "waiting_for": "triple_store_unreachable",
        "since": began.isoformat(),
        "host": "store.example.org",
    }
    assert failure.failed_at <= began + timedelta(hours=6, minutes=15)


def test_a_job_that_nobody_claims_fails_at_its_deadline(engine, clock, job):
    clock.advance("29 h 59 min")
    engine.recover()
    assert engine.job(job)
    clock.advance("1 min")
    assert engine.recover()["deadline_exceeded"] == 1
    assert engine.failure(job).details == {"step": "REQUESTED"}
    assert kinds(engine, job)[-1] == "failed"


def test_past_its_deadline_a_job_is_not_claimed_even_if_recovery_is_late(engine, clock, job):
    clock.advance("31 h")
    assert work(engine, job) == "nothing"
    assert engine.health().past_bound == 1


def test_the_mark_of_a_cancellation_is_honoured_when_its_owner_is_lost(engine, clock, job):
    take(engine, job)
    engine.cancel(job)
    clock.advance("6 min")
    assert engine.recover()["cancelled"] == 1
    assert engine.failure(job).code == "cancelled"


def test_T17_one_tick_delivered_five_times_at_once_has_the_effect_of_one(engine, clock, dsn, settings, queues):
    jobs = [engine.accept("delivery", Parcel(name=str(number))).job.id for number in range(20)]
    for job in jobs[:10]:
        take(engine, job, seconds=60)
    clock.advance("30 min")
    queues.sent.clear()
    start = Barrier(5)

    def tick(_):
        database = Database(dsn)
        theirs = Engine(database, toy.PIPELINES, settings, queues)
        start.wait()
        counts = theirs.recover()
        database.close()
        return counts

    with ThreadPoolExecutor(5) as pool:
        counts = list(pool.map(tick, range(5)))
    assert sum(count.get("worker_lost", 0) for count in counts) == 10
    assert sum(count.get("wake_up_lost", 0) for count in counts) == 10
    engine.relay()
    assert sorted(job for _, job, _ in queues.sent) == sorted(jobs)
    assert [kinds(engine, job) for job in jobs] == [["accepted", "claimed", "worker_lost"]] * 10 + [
        ["accepted", "wake_up_lost"]
    ] * 10


def test_T06_rows_that_fail_to_recover_block_nobody_and_end_as_unrecoverable(engine, clock, break_events):
    bad = [engine.accept("delivery", Parcel(name=f"bad{number}")).job.id for number in range(8)]
    clock.advance("1 s")
    good = engine.accept("delivery", Parcel(name="good")).job.id
    clock.advance("31 min")
    break_events("wake_up_lost")

    counts = engine.recover()

    assert (counts["unrecoverable"], counts["wake_up_lost"]) == (8, 1)
    assert [engine.failure(job).code for job in bad] == ["unrecoverable"] * 8
    assert engine.job(good).status == "queued"


def test_T06_even_what_cannot_be_failed_is_passed_over(engine, clock, capsys, break_events):
    bad = engine.accept("delivery", Parcel(name="bad")).job.id
    clock.advance("1 s")
    good = engine.accept("delivery", Parcel(name="good")).job.id
    clock.advance("31 min")
    break_events("wake_up_lost", "failed")

    counts = engine.recover()

    assert (counts["passed_over"], counts["wake_up_lost"]) == (1, 1)
    assert engine.job(bad).status == engine.job(good).status == "queued"
    assert "someone@example.org" not in capsys.readouterr().out


def test_a_deadlock_or_a_time_out_fails_no_job(engine, clock, monkeypatch, job):
    clock.advance("31 min")

    def deadlocks(*args, **params):
        raise psycopg.errors.DeadlockDetected

    monkeypatch.setattr(engine.db, "one", deadlocks)
    assert engine.recover()["passed_over"] == 1
    monkeypatch.undo()
    assert engine.recover()["wake_up_lost"] == 1


def test_a_schema_that_is_not_this_codes_fails_no_job(engine, clock, admin_database_dsn, job):
    take(engine, job, seconds=60)
    clock.advance("2 min")
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("alter function engine.ended rename to finished")
        try:
            assert engine.recover()["passed_over"] == 1
        finally:
            admin.execute("alter function engine.finished rename to ended")
    assert engine.recover()["worker_lost"] == 1


def test_a_database_that_takes_no_writes_is_away_and_costs_nobody_an_attempt(engine, clock, break_events):
    """Around a failover the next connection may lead to a standby, or to one that isn't promoted yet."""
    job = engine.accept("delivery", Parcel(name="bad")).job.id
    break_events("advanced", "retried", "failed", sqlstate="25006")
    with pytest.raises(DatabaseAway):
        work(engine, job)
    assert [engine.job(job).status, engine.job(job).attempts] == ["running", 1]
    clock.advance("31 min")
    break_events("worker_lost", sqlstate="25006")
    with pytest.raises(DatabaseAway):
        engine.recover()
    break_events()
    assert engine.recover()["worker_lost"] == 1
    clock.advance("1 min")
    assert work(engine, job) == "finished"


@pytest.mark.parametrize("sqlstate", ["3F000", "0A000", "54000", "XX000"])
def test_what_is_not_the_rows_fault_fails_no_job(engine, clock, break_events, sqlstate):
    job = engine.accept("delivery", Parcel(name="bad")).job.id
    clock.advance("31 min")
    break_events("wake_up_lost", sqlstate=sqlstate)
    assert engine.recover()["passed_over"] == 1
    break_events()
    assert engine.recover()["wake_up_lost"] == 1
    assert engine.job(job).status == "queued"


@pytest.mark.parametrize("sqlstate", ["21000", "22003", "23514", "P0001"])
def test_what_comes_of_the_row_or_of_a_trigger_for_it_does(engine, clock, break_events, sqlstate):
    job = engine.accept("delivery", Parcel(name="bad")).job.id
    clock.advance("31 min")
    break_events("wake_up_lost", sqlstate=sqlstate)
    assert engine.recover()["unrecoverable"] == 1
    assert engine.failure(job).code == "unrecoverable"


def test_a_row_that_somebody_else_is_handling_is_left_to_them(engine, clock, dsn, job):
    clock.advance("31 min")
    other = Database(dsn)
    with other.transaction() as tx:
        tx.run("select from engine.job for update")
        assert engine.recover() == {"in_other_hands": 1, "sent": 0}
    assert engine.recover()["wake_up_lost"] == 1
    other.close()


def test_a_bad_row_that_somebody_else_is_handling_too(engine, clock, monkeypatch, job):
    clock.advance("31 min")

    def fails(*args, **kwargs):
        monkeypatch.setattr(engine.db, "one", lambda *_, **__: None)
        raise psycopg.errors.CheckViolation

    monkeypatch.setattr(engine.db, "one", fails)
    assert engine.recover() == {"in_other_hands": 1, "sent": 0}


def test_a_bad_row_that_somebody_changes_or_owns_by_now_is_not_failed(engine, clock, dsn, job):
    clock.advance("31 min")
    other = Database(dsn)
    with other.transaction() as tx:
        tx.run("select from engine.job for no key update")
        assert engine.db.run(sql.fail_unrecoverable_job, job_id=job) == []
    take(engine, job, seconds=60)
    assert engine.db.run(sql.fail_unrecoverable_job, job_id=job) == []
    assert engine.job(job).status == "running"
    other.close()


@pytest.mark.parametrize(
    "change", [lambda engine, job: take(engine, job), lambda engine, job: engine.pause()], ids=["claimed", "paused"]
)
def test_a_job_that_is_claimed_or_paused_after_it_was_listed_is_left_as_it_is(engine, clock, monkeypatch, job, change):
    clock.advance("31 min")
    run = engine.db.run

    def changing(statement, /, **params):
        rows = run(statement, **params)
        if statement == sql.list_overdue_jobs and rows:
            change(engine, job)
        return rows

    monkeypatch.setattr(engine.db, "run", changing)
    assert engine.recover()["in_other_hands"] == 1
    assert "wake_up_lost" not in kinds(engine, job)


UNOWNED = "claim_id = null, lease_owner = null, "
HELD_BACK = UNOWNED + "state = 'REQUESTED', attempts = 0, order_key = 'a', order_number = 1, held_back = true, "
CANCELLED = "cancel_requested_at = engine.clock(), "
OVERDUE = {
    "its worker is lost": "",
    "its wake-up is lost": UNOWNED,
    "it is held back": HELD_BACK,
    "it is cancelled": CANCELLED,
    "it is both, which nothing makes it": HELD_BACK + CANCELLED,
    "its deadline has passed": "deadline_at = engine.clock(), ",
    "its attempts are spent": "attempts = 3, ",
}


@pytest.mark.parametrize("why", OVERDUE)
def test_recovery_changes_a_row_in_one_place(engine, job, why):
    """Of two changes of one row in one statement PostgreSQL makes one, and doesn't promise which."""
    take(engine, job)
    engine.db.run(f"update engine.job set {OVERDUE[why]} locked_until = engine.clock()")
    explain = "explain (analyze, format json) " + sql.recover_job
    backoff, wakeup_lost = [timedelta(seconds=10), timedelta(seconds=40)], timedelta(minutes=30)
    [row] = engine.db.run(explain, job_id=job, backoff=backoff, wakeup_lost=wakeup_lost)

    def changes(node):
        """How many rows each change of the table is given."""
        if (node["Node Type"], node.get("Relation Name")) == ("ModifyTable", "job"):
            yield node["Plans"][0]["Actual Rows"]
        for part in node.get("Plans", []):
            yield from changes(part)

    given = list(changes(row["QUERY PLAN"][0]["Plan"]))
    assert (len(given), sum(given)) == (4, 1)


def test_recovery_is_bounded_by_time_not_by_number(engine, clock, monkeypatch):
    for number in range(5):
        engine.accept("delivery", Parcel(name=str(number)))
    clock.advance("31 min")
    one = engine.db.one
    monkeypatch.setattr(engine.db, "one", lambda *args, **params: (clock.advance("20 s"), one(*args, **params))[1])
    assert engine.recover() == {"wake_up_lost": 2, "sent": 2}  # the rest of the time is the relay's
    monkeypatch.undo()
    assert engine.recover() == {"wake_up_lost": 3, "sent": 3}


def test_a_relay_whose_time_is_up_has_not_finished(engine, clock, monkeypatch):
    engine.queues.away = True
    for number in range(15):
        engine.accept("delivery", Parcel(name=str(number)))
    engine.queues.away = False
    run = engine.db.run
    monkeypatch.setattr(engine.db, "run", lambda *args, **params: (clock.advance("11 s"), run(*args, **params))[1])
    assert engine.recover() == {"sent": 10}
    monkeypatch.undo()
    assert engine.health().runs["relay"].finished_at is None


def test_a_tick_whose_time_and_the_databases_clock_disagree_changes_nothing(engine, clock, job):
    clock.advance("31 min")
    for minutes in (-6, 6):
        for run in (
            engine.recover,
            engine.catch_up,
            lambda event_time: engine.clean_up(event_time=event_time, removers={}),
        ):
            with pytest.raises(ClockDisagrees):
                run(event_time=clock.now() + timedelta(minutes=minutes))
    assert kinds(engine, job) == ["accepted"]
    assert {run.finished_at for run in engine.health().runs.values()} == {None}
    assert engine.recover(event_time=clock.now() - timedelta(minutes=5))["wake_up_lost"] == 1


# Pauses


def test_a_pause_stops_claims_of_its_pipeline_and_of_no_other(engine, clock, job):
    crawl = engine.accept("crawl", Parcel(name="c")).job.id
    pause = engine.pause("delivery")
    assert (pause.since, pause.until) == (clock.now(), clock.now() + timedelta(hours=24))
    assert work(engine, job) == "nothing"
    assert work(engine) == "nothing"
    assert work(engine, crawl, queue="fetch") == "finished"
    assert engine.pauses() == [pause]
    assert engine.resume("delivery")
    assert work(engine, job) == "finished"
    assert not engine.resume("delivery")


def test_what_was_passed_over_is_not_listed_again(engine, clock, job):
    clock.advance("31 min")
    listed = [engine.db.run(sql.list_overdue_jobs, passed=passed) for passed in ([], [job])]
    assert listed == [[{"id": job}], []]


def test_recovery_passes_over_what_a_pause_holds(engine, clock, job):
    engine.pause("delivery")
    clock.advance("31 min")
    assert not {"in_other_hands", "wake_up_lost"} & engine.recover().keys()


def test_another_pipelines_pause_holds_nobody_of_this_one(engine, clock, job):
    engine.pause("tour")
    clock.advance("1 s")
    other = engine.accept("delivery", Parcel(name="other")).job.id
    assert take(engine, other, seconds=60).id == other
    clock.advance("33 min")
    assert engine.health().past_bound == 2
    counts = engine.recover()
    assert (counts["worker_lost"], counts["wake_up_lost"]) == (1, 1)
    assert kinds(engine, job) == ["accepted", "wake_up_lost"]


def test_a_pause_of_everything_stops_everything(engine, job):
    engine.pause()
    assert work(engine, job) == "nothing"
    engine.resume()
    assert work(engine, job) == "finished"


def test_what_a_pause_holds_is_neither_failed_nor_past_its_bound_and_its_end_moves_the_bounds(
    engine, clock, queues, job
):
    before = engine.job(job)
    engine.pause("delivery", hours=168)
    for _ in range(48):
        clock.advance("1 h")
        engine.recover()
        engine.catch_up()
    assert engine.health().ok
    queues.sent.clear()
    engine.resume("delivery")
    after = engine.job(job)
    assert after.deadline_at == before.deadline_at + timedelta(hours=48)
    assert after.locked_until == before.locked_until + timedelta(hours=48)
    engine.relay()
    assert queues.of(job) == [0]
    assert kinds(engine, job) == ["accepted", "pause_ended"]
    assert work(engine, job) == "finished"


def test_a_pause_ends_by_itself(engine, clock, job):
    before = engine.job(job)
    engine.pause("delivery", hours=1)
    clock.advance("59 min")
    assert "pauses_ended" not in engine.recover()
    clock.advance("1 min")
    assert engine.recover()["pauses_ended"] == 1
    assert engine.pauses() == []
    assert engine.job(job).deadline_at == before.deadline_at + timedelta(hours=1)


def test_a_pause_that_gets_another_end_while_recovery_comes_to_it_stands(engine, clock, other, job, monkeypatch):
    run = Transaction.run

    def extended(tx, text, /, **params):
        if text == sql.end_pause:
            other.run("update engine.pause set until = until + interval '1 hour'")
        return run(tx, text, **params)

    engine.pause("delivery", hours=1)
    clock.advance("1 h")
    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "run", extended)
        assert "pauses_ended" not in engine.recover()
    assert [pause.until for pause in engine.pauses()] == [clock.now() + timedelta(hours=1)]


def test_pauses_that_cannot_be_ended_hold_up_nobody_else_and_health_says_so(engine, clock, other, job):
    clock.advance("1 s")
    lost = engine.accept("tour", Parcel(name="a")).job.id
    take(engine, lost, seconds=60)
    for pipeline in ("delivery", "*"):
        engine.pause(pipeline, hours=1)
    clock.advance("1 h")
    theirs = Engine(other, toy.PIPELINES, engine.settings, engine.queues)
    with engine.db.transaction() as tx:
        tx.run("select from engine.job where id = %(job)s for update", job=job)
        counts = theirs.recover()
    assert counts == {"pauses_not_ended": 2, "worker_lost": 1, "sent": 1}
    assert "recovery has not finished for five minutes" in engine.health().reasons
    assert theirs.recover()["pauses_ended"] == 2
    assert "recovery has not finished for five minutes" not in engine.health().reasons


def test_a_pause_that_takes_long_to_end_comes_after_everything_else_and_has_its_time_outs(engine, clock, monkeypatch):
    """Statements may take 25 s: with two such pauses nothing else would have its turn, and nobody a wake-up."""
    run, seen = Transaction.run, []

    def told(tx, text, /, **params):
        if text == sql.end_pause:
            seen.extend(run(tx, f"show {what}")[0][what] for what in ("lock_timeout", "statement_timeout"))
            clock.advance("10 s")
        return run(tx, text, **params)

    lost = engine.accept("tour", Parcel(name="a")).job.id
    take(engine, lost, seconds=60)
    for pipeline in ("crawl", "delivery", "ferry", "recall", "post"):
        engine.pause(pipeline, hours=1)
    clock.advance("1 h")
    monkeypatch.setattr(Transaction, "run", told)
    assert engine.recover() == {"worker_lost": 1, "pauses_ended": 4, "sent": 1}
    assert seen == ["2s", "10s"] * 4
    engine.pause("tour", hours=100)  # it stands, and takes no time from the other
    assert engine.recover() == {"pauses_ended": 1, "sent": 0}
    assert seen[8:] == ["2s", "20s"]  # alone it may hold twice as many; whoever waits for one of them gives up after 25


def test_whom_an_ended_pause_has_held_is_recovered_by_the_same_run(engine, clock, job):
    """A clock that was ahead has counted all of its time."""
    engine.db.run("update engine.job set pauses_counted_until = engine.clock() + interval '30 days'")
    engine.pause("delivery", hours=1)
    clock.advance("2 h")
    assert engine.recover() == {"pauses_ended": 1, "wake_up_lost": 1, "sent": 1}


def test_no_more_pauses_are_ended_than_there_is_time_for(engine, clock, queues):
    engine.pause("delivery", hours=1)
    clock.advance("1 h")
    hurried = Engine(engine.db, toy.PIPELINES, engine.settings.model_copy(update={"recovery_seconds": -1}), queues)
    assert hurried.recover() == {"sent": 0}
    assert [pause.pipeline for pause in engine.pauses()] == ["delivery"]


def test_a_job_that_came_during_a_pause_is_moved_by_what_it_waited(engine, clock):
    engine.pause("delivery")
    clock.advance("5 h")
    job = engine.accept("delivery", Parcel(name="a")).job
    clock.advance("2 h")
    engine.resume("delivery")
    assert engine.job(job.id).deadline_at == job.deadline_at + timedelta(hours=2)


def test_an_owned_job_goes_on_through_a_pause_and_its_bounds_stand(engine, clock, job):
    leased = take(engine, job, seconds=60)
    before = engine.job(job)
    engine.pause("delivery")
    clock.advance("30 s")
    leased.heartbeat()
    engine.resume("delivery")
    assert engine.job(job).deadline_at == before.deadline_at
    engine.pause("delivery")
    clock.advance("2 min")
    assert engine.recover()["worker_lost"] == 1  # a lost worker is noticed in a pause, too


def test_a_pause_counts_from_when_a_job_was_due_again(engine, clock, job):
    """Who owned it through the pause, and gives it back a minute before the end, was held up for no more than that."""
    leased = take(engine, job, seconds=60)
    before = engine.job(job).deadline_at
    engine.pause("delivery")
    for _ in range(30):
        clock.advance("30 s")
        leased.heartbeat(force=True)
    leased.wait(20, None)
    clock.advance("1 min")
    engine.resume("delivery")
    after = engine.job(job)
    assert after.deadline_at == before + timedelta(seconds=40)
    assert after.locked_until == clock.now() + timedelta(seconds=engine.settings.wakeup_lost)


def test_a_pause_counts_from_when_a_line_moved_up(engine, clock):
    head = take(engine, engine.accept("ferry", Parcel(name="a")).job.id)
    next = engine.accept("ferry", Parcel(name="a")).job.id
    engine.pause("ferry")
    clock.advance("4 min")
    head.complete([], {})
    clock.advance("1 min")
    engine.resume("ferry")
    assert engine.job(next).locked_until == clock.now() + timedelta(seconds=engine.settings.wakeup_lost)


def test_who_waits_for_an_instant_after_the_pause_is_not_held_up_by_it(engine, clock, job):
    leased = take(engine, job, seconds=60)
    engine.pause("delivery")
    leased.wait(7200, None)
    before = engine.job(job)
    clock.advance("1 h")
    engine.resume("delivery")
    assert engine.job(job) == before


def test_whom_two_pauses_have_held_are_claimed_in_their_order(engine, clock, queues):
    queues.away = True
    waiting = []
    for number in range(9):
        waiting.append(engine.accept("delivery", Parcel(name=str(number))).job.id)
        clock.advance("1 min")
    for number in (4, 1):  # its row lies behind the others
        engine.db.run("update engine.job set wake_ups = 0 where id = %(job)s", job=waiting[number])
    for pipeline in ("*", "delivery"):
        engine.pause(pipeline)
    clock.advance("1 h")
    engine.resume("delivery")
    engine.resume()
    assert [take(engine).id for _ in waiting] == waiting


def test_a_clock_that_was_ahead_when_one_of_two_pauses_ended_holds_up_nobody(engine, clock, job):
    for pipeline in ("*", "delivery"):
        engine.pause(pipeline)
    clock.advance("30 days")
    engine.resume()
    clock.advance("-30 days")
    engine.resume("delivery")
    assert work(engine, job) == "finished"


@pytest.mark.parametrize(
    ("one", "other", "together"),
    [((0, 10), (2, 5), 10), ((2, 5), (0, 10), 10), ((0, 5), (2, 10), 10), ((2, 5), (3, 10), 8), ((1, 2), (4, 6), 3)],
)
def test_two_pauses_over_one_job_count_once(engine, clock, job, one, other, together):
    before = engine.job(job).deadline_at
    for hour in range(12):
        for pipeline, (begin, end) in (("delivery", one), ("*", other)):
            if hour == begin:
                engine.pause(pipeline, hours=100)
            if hour == end:
                engine.resume(pipeline)
        clock.advance("1 h")
    assert engine.job(job).deadline_at == before + timedelta(hours=together)


def test_another_pipelines_pause_takes_nothing_from_this_ones(engine, clock, job):
    before = engine.job(job).deadline_at
    engine.pause("tour")
    clock.advance("1 h")
    engine.pause("delivery")
    clock.advance("1 h")
    engine.resume("delivery")
    assert engine.job(job).deadline_at == before + timedelta(hours=1)


# Health


def test_health_says_when_recovery_does_not_run(engine, clock):
    engine.recover()
    engine.catch_up()
    assert engine.health().ok
    clock.advance("5 min")
    engine.catch_up()
    assert engine.health().ok
    clock.advance("1 s")
    health = engine.health()
    assert health.ok is False
    assert health.reasons == [
        "recovery has not finished for five minutes",
        "relay has not finished for five minutes",
    ]
    assert health.runs["recovery"].finished_at == clock.now() - timedelta(minutes=5, seconds=1)
    engine.recover()
    assert engine.health().ok


def test_a_new_installation_has_five_minutes_to_begin(engine, clock):
    assert engine.health().ok
    clock.advance("6 min")
    assert len(engine.health().reasons) == 3


def test_health_counts_the_jobs_past_their_bound(engine, clock, job):
    take(engine, job, seconds=60)
    clock.advance("3 min")
    assert engine.health().ok
    clock.advance("1 s")
    assert engine.health().reasons == ["1 unfinished job(s) past their bound"]
    engine.recover()
    assert engine.health().ok


def test_the_event_time_of_a_tick_may_be_in_any_zone(engine, clock):
    clock.set("2026-03-02 09:00:00+00")
    engine.recover(event_time=datetime(2026, 3, 2, 9, 1, tzinfo=UTC))
    assert engine.health().runs["recovery"].counts == {}


def test_a_wait_longer_than_the_deadline_ends_at_the_deadline(engine, clock, job):
    behaviour["PACK"] = lambda leased: Wait(86_400 * 9, "export")
    work(engine, job)
    assert engine.job(job).locked_until == engine.job(job).deadline_at
    clock.advance("6 h")
    assert engine.recover()["deadline_exceeded"] == 1
    assert engine.failure(job).details["waiting_for"] == "export"
