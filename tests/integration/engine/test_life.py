"""The life of a job: steps, waits, retries, ends."""

from datetime import timedelta
from uuid import uuid4

import pytest

from chalicelib.engine import (
    Advance,
    Finished,
    LeaseLost,
    Outage,
    PermanentFailure,
    Step,
    TooLate,
    TransientFailure,
    Wait,
)
from tests.toy import Letter, Parcel, behaviour, crash, kinds, take, work


@pytest.fixture
def job(engine):
    return engine.accept("delivery", Parcel(name="a")).job.id


def test_a_job_is_accepted_worked_on_and_finished(engine, queues, job):
    waiting = engine.job(job)
    assert (waiting.state, waiting.status, waiting.attempts) == ("REQUESTED", "queued", 0)
    assert queues.sent == [("work", job, 0)]

    assert work(engine, job) == "finished"

    done = engine.job(job)
    assert (done.state, done.status, done.attempts) == ("DELIVERED", "succeeded", 1)
    assert done.run_at is done.locked_until is done.deadline_at is None
    assert kinds(engine, job) == ["accepted", "claimed", "advanced", "finished"]


def test_the_deadline_is_the_queue_budget_and_the_run_budget_and_is_set_anew_at_the_first_claim(engine, clock, job):
    assert engine.job(job).deadline_at == clock.now() + timedelta(hours=30)
    clock.advance("10 min")
    behaviour["PACK"] = lambda leased: Wait(60)
    work(engine, job)
    assert engine.job(job).deadline_at == clock.now() + timedelta(hours=6)
    clock.advance("10 min")
    work(engine, job)
    assert engine.job(job).deadline_at == clock.now() + timedelta(hours=6) - timedelta(minutes=10)


def test_steps_hand_on_results_and_the_subject_comes_as_its_model(engine, job):
    seen = []
    behaviour["PACK"] = lambda leased: Advance(weight=3)
    behaviour["SHIP"] = lambda leased: (seen.append((leased.subject, leased.result, leased.request)), Advance(van=1))[1]
    work(engine, job)
    assert seen == [(Parcel(name="a"), {"weight": 3}, None)]
    assert engine.job(job).result == {"weight": 3, "van": 1}


def test_with_little_time_left_the_next_step_is_handed_over_through_the_outbox(engine, queues, job):
    left = [300]

    def pack(leased):
        left[0] = 20
        return Advance()

    behaviour["PACK"] = pack
    assert engine.work("work", job=job, until=lambda: left[0]).outcome == "handed_over"
    handed = engine.job(job)
    assert (handed.state, handed.status, handed.claim_id, handed.attempts) == ("SHIP", "running", None, 1)
    assert queues.of(job) == [0, 0]
    assert work(engine, job) == "finished"
    assert engine.job(job).attempts == 1


def test_a_wait_gives_the_lease_back_and_spends_no_attempt(engine, queues, clock, job):
    behaviour["PACK"] = lambda leased: Wait(90, "export")
    began = clock.now()
    for _ in range(10):
        assert work(engine, job) == "waiting"
        assert work(engine, job) == "nothing"
        clock.advance("90 s")
    waiting = engine.job(job)
    assert (waiting.state, waiting.attempts, waiting.claim_id) == ("PACK", 1, None)
    assert waiting.waiting_for.code == "export"
    assert waiting.waiting_for.since == began
    assert waiting.waiting_for.until == clock.now()
    assert queues.of(job) == [0] + [90] * 10
    behaviour.clear()
    assert work(engine, job) == "finished"
    assert engine.job(job).waiting_for is None


def test_a_transient_failure_backs_off_and_the_third_one_is_final(engine, queues, clock, job):
    def ship(leased):
        raise TransientFailure("source_conflict", sqlstate="40001")

    behaviour["SHIP"] = ship
    assert work(engine, job) == "retrying"
    again = engine.job(job)
    assert (again.state, again.result) == ("REQUESTED", {})
    assert again.run_at == clock.now() + timedelta(seconds=10)
    clock.advance("10 s")
    assert work(engine, job) == "retrying"
    assert engine.job(job).run_at == clock.now() + timedelta(seconds=40)
    clock.advance("40 s")
    assert work(engine, job) == "failed"
    failure = engine.failure(job)
    assert (failure.code, failure.state, failure.attempts) == ("source_conflict", "SHIP", 3)
    assert failure.details == {"step": "SHIP", "sqlstate": "40001"}
    assert engine.job(job) is None
    assert engine.status(job) == failure
    assert queues.of(job) == [0, 10, 40]


def test_not_even_a_worker_that_has_miscounted_begins_a_fourth_attempt(engine, database, job):
    database.run("update engine.job set attempts = 2")
    leased = take(engine, job)
    with pytest.raises(LeaseLost):
        leased.retry("internal_error", {})
    assert (engine.job(job).state, engine.job(job).attempts) == ("PACK", 3)


def test_a_permanent_failure_is_final_at_once(engine, job):
    def pack(leased):
        raise PermanentFailure("source_denied", relation="flights")

    behaviour["PACK"] = pack
    assert work(engine, job) == "failed"
    assert engine.failure(job).details == {"step": "PACK", "relation": "flights"}


@pytest.mark.parametrize("wrong", [lambda leased: None, lambda leased: Finished(), lambda leased: 1 / 0])
def test_whatever_else_a_step_does_is_an_internal_error(engine, clock, job, wrong):
    behaviour["PACK"] = wrong
    assert [work(engine, job), clock.advance("10 s"), work(engine, job), clock.advance("40 s"), work(engine, job)][
        ::2
    ] == ["retrying", "retrying", "failed"]
    assert engine.failure(job).code == "internal_error"
    assert engine.failure(job).details["exception"] in ("TypeError", "ZeroDivisionError")


def test_an_error_of_the_database_leaves_its_sqlstate_and_nothing_else(engine, clock, database, job):
    behaviour["PACK"] = lambda leased: database.run("select secret_column from nowhere")
    assert work(engine, job) == "retrying"
    assert engine.history(job)[-1]["details"] == {
        "code": "internal_error",
        "exception": "UndefinedTable",
        "sqlstate": "42P01",
    }


def test_a_finish_in_the_callers_transaction_commits_with_it(engine, database, job):
    def ship(leased):
        with leased.transaction() as tx:
            leased.hold(tx)
            leased.finish(tx, version=4, files=["a"])
        return Finished()

    behaviour["SHIP"] = ship
    assert work(engine, job) == "finished"
    done = engine.job(job)
    assert (done.version, done.result, done.state) == (4, {"files": ["a"]}, "DELIVERED")


def test_a_finish_that_is_rolled_back_is_none(engine, job):
    def pack(leased):
        with leased.transaction() as tx:
            leased.finish(tx)
            raise TransientFailure("triple_store_mismatch")

    behaviour["PACK"] = pack
    assert work(engine, job) == "retrying"
    assert engine.job(job).status == "queued"


def test_progress_is_reported_at_most_once_a_heartbeat_and_never_lost(engine, clock, job):
    seen = []

    def pack(leased):
        for records in range(1, 8):
            clock.advance("4 s")
            leased.heartbeat(records=records, bytes=records * 10, total=7)
            seen.append(engine.job(job).progress.records)
        return Advance()

    behaviour["PACK"] = pack
    work(engine, job)
    assert seen == [0, 0, 0, 4, 4, 4, 4]
    progress = engine.job(job).progress
    assert (progress.records, progress.bytes, progress.total) == (7, 70, 7)


def test_the_same_ask_again_is_one_claim_in_the_history(engine, job):
    ask = uuid4()
    for _ in range(2):
        assert engine.claim("work", job=job, ask=ask, lease=timedelta(seconds=60))
    assert kinds(engine, job) == ["accepted", "claimed"]


def test_a_wake_up_that_comes_too_soon_gets_no_claim(engine, clock, job):
    take(engine, job).wait(20, None)
    clock.advance("19 s")
    assert take(engine, job) is None
    clock.advance("1 s")
    assert take(engine, job)


@pytest.mark.parametrize("named", [True, False], ids=["by its wake-up", "by a tick"])
def test_a_checkpoint_survives_a_crash_of_its_step_but_not_into_the_last_attempt(engine, clock, job, named):
    seen = []

    def pack(leased):
        seen.append(leased.checkpoint)
        leased.save({"page": len(seen)})
        return crash(leased)

    behaviour["PACK"] = pack
    for _ in range(3):
        work(engine, job if named else None)
        clock.advance("2 min")
        engine.recover()
        clock.advance("1 min")
    assert seen == [None, {"page": 1}, None]


def test_a_checkpoint_of_another_step_or_shape_is_dropped(engine, clock, job, monkeypatch):
    take(engine, job, seconds=60).save({"page": 1})
    clock.advance("2 min")
    engine.recover()
    clock.advance("1 min")
    older = engine.pipelines["delivery"].steps[0]
    monkeypatch.setitem(vars(engine.pipelines["delivery"]), "steps", [Step(older.state, older.run, shape=2)])
    assert take(engine, job).checkpoint is None


def test_a_step_goes_on_with_its_checkpoint_after_a_wait_and_the_next_step_begins_without(engine, clock, job):
    seen = []

    def pack(leased):
        seen.append(leased.checkpoint)
        if leased.checkpoint is None:
            leased.save({"export": 1})
            return Wait(5)
        return Advance()

    behaviour["PACK"] = pack
    behaviour["SHIP"] = lambda leased: (seen.append(leased.checkpoint), Advance())[1]
    work(engine, job)
    clock.advance("5 s")
    assert work(engine, job) == "finished"
    assert seen == [None, {"export": 1}, None]


def test_committed_progress_gives_the_attempts_back_where_the_pipeline_says_so(engine, clock):
    job = engine.accept("crawl", Parcel(name="c")).job.id

    def crawl(leased):
        page = (leased.checkpoint or {"page": 0})["page"]
        if page == 12:
            return Advance()
        leased.save({"page": page + 1})
        assert leased.attempts == 1
        return crash(leased)

    behaviour["CRAWL"] = crawl
    for _ in range(12):
        assert work(engine, job, queue="fetch") == "crashed"
        clock.advance("2 min")
        engine.recover()
        clock.advance("1 min")
    assert work(engine, job, queue="fetch") == "finished"


def test_a_checkpoint_without_progress_gives_no_attempt_back(engine, clock):
    job = engine.accept("crawl", Parcel(name="c")).job.id

    def crawl(leased):
        leased.save({"page": 1}, progress=False)
        return crash(leased)

    behaviour["CRAWL"] = crawl
    for attempt in (1, 2, 3):
        assert work(engine, job, queue="fetch") == "crashed"
        assert engine.job(job).attempts == attempt
        clock.advance("2 min")
        engine.recover()
        clock.advance("1 min")
    assert engine.status(job).code == "attempts_exhausted"


def test_a_payload_reaches_its_step_and_is_gone_at_the_end(engine, database):
    job = engine.accept("post", Parcel(name="p"), request=Letter(text="dear")).job.id
    seen = []
    behaviour["READ"] = lambda leased: (seen.append(leased.request), Advance())[1]
    work(engine, job)
    assert seen == [Letter(text="dear")]
    assert database.one("select request from engine.job where id = %(id)s", id=job)["request"] is None


def test_a_lease_can_be_made_to_outlast_what_is_to_come(engine, clock, job):
    leased = take(engine, job, seconds=10)
    leased.require(5)
    assert engine.job(job).locked_until == clock.now() + timedelta(seconds=10)
    leased.require(20)
    assert engine.job(job).locked_until == clock.now() + timedelta(seconds=60)
    leased.require(100)
    assert engine.job(job).locked_until == clock.now() + timedelta(seconds=101)
    clock.advance("90 s")
    leased._until = lambda: 30.0
    with pytest.raises(TooLate):
        leased.require(40)


def test_no_lease_is_made_to_outlast_the_deadline(engine, clock, job):
    leased = take(engine, job, seconds=100_000)
    clock.advance("6 hours")
    clock.advance("-10 s")
    with pytest.raises(LeaseLost):
        leased.require(40)


def test_a_step_that_this_invocation_has_no_time_for_is_another_ones_and_spends_nothing(engine, clock, job):
    left = iter([40.0] + [30.0] * 9)
    behaviour["PACK"] = lambda leased: leased.require(41)
    assert engine.work("work", job=job, until=lambda: next(left)).outcome == "waiting"
    assert work(engine, left=30) == "nothing"  # this invocation doesn't take it again
    clock.advance("30 s")
    behaviour["PACK"] = lambda leased: (leased.require(40), Advance())[1]
    assert work(engine, job) == "finished"
    assert engine.job(job).attempts == 1


def test_an_outage_waits_with_growing_pauses_and_spends_no_attempt(engine, clock, job):
    def pack(leased):
        raise Outage("source_unreachable", host="db.example.org")

    behaviour["PACK"] = pack
    pauses = []
    for _ in range(8):
        assert work(engine, job) == "waiting"
        waiting = engine.job(job)
        pauses.append((waiting.run_at - clock.now()).total_seconds())
        assert (waiting.attempts, waiting.waiting_for.code) == (1, "source_unreachable")
        clock.advance(f"{pauses[-1]} s")
    assert pauses == [15, 30, 60, 120, 240, 300, 300, 300]
    behaviour["PACK"] = lambda leased: Wait(1) if leased.outages else Advance()
    assert work(engine, job) == "waiting"
    assert engine.job(job).waiting_for is None


def test_an_outage_that_says_how_long_it_lasts_is_waited_for_that_long_at_least(engine, clock, job):
    asked = iter([900, 1])

    def pack(leased):
        raise Outage("data_service_unreachable", host="exports.example.org", seconds=next(asked))

    behaviour["PACK"] = pack
    pauses = []
    for _ in range(2):
        assert work(engine, job) == "waiting"
        pauses.append((engine.job(job).run_at - clock.now()).total_seconds())
        clock.advance(f"{pauses[-1]} s")
    assert pauses == [900, 30]
