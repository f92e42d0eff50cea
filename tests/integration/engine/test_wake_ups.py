"""Wake-ups are hints: lost, late, doubled or reordered, they change nothing but the time it takes."""

from datetime import timedelta

import pytest

from chalicelib.engine import Advance, Wait
from chalicelib.engine.lease import sql
from tests.toy import Parcel, behaviour, crash, kinds, take, work


@pytest.fixture
def job(engine, queues):
    """A job whose wake-up is still owed."""
    queues.away = True
    job = engine.accept("delivery", Parcel(name="a")).job.id
    queues.away = False
    return job


def test_sqs_being_away_changes_nothing_for_the_caller(engine, queues, clock, job):
    assert engine.job(job).status == "queued"
    assert engine.relay() == 1
    assert engine.relay() == 0
    assert queues.of(job) == [0]


def test_a_step_that_goes_on_in_the_same_invocation_owes_no_wake_up(engine, queues):
    job = engine.accept("delivery", Parcel(name="a")).job.id
    owed = []
    behaviour["SHIP"] = lambda leased: (owed.extend(engine.db.run("select * from engine.outbox")), Advance())[1]
    assert work(engine, job) == "finished"
    assert (owed, queues.of(job)) == ([], [0])


def test_what_sqs_does_not_acknowledge_is_owed_as_before_but_for_a_newer_wake_up(
    engine, queues, clock, job, monkeypatch
):
    newer, later = (engine.accept("tour", Parcel(name=name)).job.id for name in ("newer", "later"))
    engine.db.run("update engine.outbox set send_at = engine.clock()")
    take(engine, later).wait(7200, None)
    engine.db.run("insert into engine.outbox (job_id, queue, run_at, send_at) values (%(id)s, 'work', engine.clock(),"
                  " engine.clock()) on conflict do nothing", id=newer)  # fmt: skip

    def rows():
        return {row["job_id"]: row["send_at"] for row in engine.db.run("select * from engine.outbox")}

    def fail(*_, **__):
        change = (
            "update engine.outbox set number = number + 1, send_at = send_at + interval '1 h' where job_id = %(id)s"
        )
        engine.db.run(change, id=newer)
        seen.update(rows())
        raise ConnectionError

    seen = {}
    monkeypatch.setattr(queues, "send", fail)
    engine.relay()
    assert rows() == seen | {job: clock.now()}


def test_nor_does_the_database_being_away_once_the_job_is_accepted(lossy, queues):
    lossy.db.requests = [sql.take_wake_up]
    job = lossy.accept("delivery", Parcel(name="a")).job.id
    assert queues.of(job) == []
    assert lossy.relay() == 1


def test_a_queue_that_stays_away_leaves_everything_owed_and_the_relay_unfinished(engine, queues, clock, job):
    queues.away = True
    clock.advance("10 min")
    assert engine.relay() == 0
    assert engine.recover()["sent"] == 0
    assert "relay has not finished for five minutes" in engine.health().reasons
    queues.away = False
    assert engine.recover()["sent"] == 1
    assert engine.health().ok is False  # catch-up hasn't run here
    engine.catch_up()
    assert engine.health().ok


def test_T22_a_relay_that_dies_after_sqs_accepted_sends_again_and_the_job_runs_once(engine, queues, clock, job):
    taken = engine.db.run(sql.take_owed)
    queues.send("work", [(row["job_id"], row["delay"]) for row in taken])  # and here it dies
    clock.advance("30 s")
    engine.recover()
    assert queues.of(job) == [0, 0]

    assert [work(engine, job) for _ in queues.of(job)] == ["finished", "nothing"]
    assert engine.job(job).attempts == 1


def test_T22_messages_that_come_three_times_late_or_for_a_finished_job_have_no_effect(engine, clock, job):
    assert work(engine, job) == "finished"
    before = engine.job(job), engine.history(job)
    clock.advance("3 h")
    assert [work(engine, job) for _ in range(3)] == ["nothing"] * 3
    assert (engine.job(job), engine.history(job)) == before


def test_only_what_was_acknowledged_is_forgotten(engine, queues, clock, job):
    clock.advance("1 s")
    other = engine.accept("delivery", Parcel(name="b")).job.id
    queues.unacknowledged = {job}
    engine.relay()
    assert [row["job_id"] for row in engine.db.run("select job_id from engine.outbox")] == [job]
    queues.unacknowledged = set()
    engine.relay()
    assert queues.of(job) == [0, 0]
    assert queues.of(other) == [0]


def hands_over(leased):
    leased._until = lambda: 1.0
    return Advance()


def in_pause(engine, clock, job):
    engine.pause("delivery")
    engine.resume("delivery")


def with_step(step):
    def owe(engine, clock, job):
        behaviour["PACK"] = step
        work(engine, job)

    return owe


def without_worker(engine, clock, job):
    with_step(crash)(engine, clock, job)
    clock.advance("2 min")
    engine.recover()


def without_message(engine, clock, job):
    clock.advance("30 min")
    engine.recover()


OWES = {
    "it waits": with_step(lambda leased: Wait(600)),
    "it is tried again": with_step(lambda leased: 1 / 0),
    "it is handed over": with_step(hands_over),
    "its worker was lost": without_worker,
    "its wake-up was lost": without_message,
    "its pause has ended": in_pause,
}


@pytest.mark.parametrize("why", OWES)
def test_a_newer_wake_up_does_not_go_with_the_older_when(engine, clock, job, why):
    [older] = engine.db.run(sql.take_owed)
    engine.queues.away = True
    OWES[why](engine, clock, job)  # owes a newer one, while the older is being sent
    engine.db.run(sql.delete_sent, jobs=[job], numbers=[older["number"]])
    [newer] = engine.db.run("select number from engine.outbox")
    assert newer["number"] == older["number"] + 1


def test_nor_when_another_relay_has_forgotten_the_older_before(engine, queues, clock, job):
    [slow] = engine.db.run(sql.take_owed)
    clock.advance("31 s")
    engine.relay()
    assert queues.of(job) == [0]
    queues.away = True
    behaviour["PACK"] = lambda leased: Wait(600)
    work(engine, job)
    engine.db.run(sql.delete_sent, jobs=[job], numbers=[slow["number"]])
    queues.away = False
    engine.relay()
    assert queues.of(job) == [0, 600]


def test_a_wake_up_that_is_far_away_stays_until_it_is_nearer_than_sqs_longest_delay(engine, queues, clock, job):
    behaviour["PACK"] = lambda leased: Wait(3600)
    work(engine, job)
    engine.recover()
    assert queues.of(job) == []
    clock.advance("45 min")
    engine.recover()
    assert queues.of(job) == [900]
    clock.advance("15 min")
    assert work(engine, job) == "waiting"


def test_a_duplicate_wake_up_during_back_off_spends_no_attempt(engine, clock, job):
    behaviour["PACK"] = lambda leased: 1 / 0
    assert work(engine, job) == "retrying"
    for _ in range(9):
        assert work(engine, job) == "nothing"
        clock.advance("1 s")
    assert engine.job(job).attempts == 1
    clock.advance("1 s")
    assert work(engine, job) == "retrying"


def test_a_lost_wake_up_is_sent_again_after_half_an_hour_then_every_hour(engine, queues, clock, job):
    for _ in range(300):
        engine.recover()
        clock.advance("1 min")
    times = [event["at"] - engine.job(job).accepted_at for event in engine.history(job)[1:]]
    assert times == [timedelta(minutes=minutes) for minutes in (30, 90, 150, 210, 270)]
    assert engine.job(job).attempts == 0
    assert len(queues.of(job)) == 6


def test_a_lost_wake_up_costs_a_minute_for_the_tick_takes_what_is_due(engine, job):
    assert [worked.job for worked in engine.work_on("work", [], lambda: 300)] == [job]


def test_a_job_is_sent_to_its_own_queue(engine, queues):
    engine.accept("crawl", Parcel(name="c"))
    engine.accept("delivery", Parcel(name="a"))
    assert [queue for queue, _, _ in queues.sent] == ["fetch", "work"]


def test_ten_thousand_queued_jobs_and_one_slow_worker_cost_two_messages_a_job_at_most(engine, queues, clock):
    engine.db.run(
        """
        with clock as (select engine.clock() as now)
        , job as (
            insert into engine.job (pipeline, queue, conflict_key, subject, queue_budget, run_budget
                                  , accepted_at, run_at, locked_until, deadline_at)
            select 'delivery', 'work', 'parcel:' || n, jsonb_build_object('name', n::text), '24 h', '6 h'
                 , now, now, now + interval '30 min', now + interval '30 h'
              from clock, generate_series(1, 10000) as n
            returning *)
        insert into engine.outbox (job_id, queue, run_at, send_at) select id, queue, run_at, run_at from job
        """
    )
    for minute in range(60):
        engine.recover()
        if minute % 10 == 5:  # one job in ten minutes
            assert work(engine, queues.sent[minute][1]) == "finished"
        clock.advance("1 min")

    assert len(queues.sent) > 15_000  # each lost wake-up was sent again, once
    most = engine.db.one("select count(*) from engine.job where finished_at is null")["count"]
    assert most == 10_000 - 6
    messages: dict = {}
    for _, job, _ in queues.sent:
        messages[job] = messages.get(job, 0) + 1
    assert max(messages.values()) == 2


def test_the_history_of_a_lost_wake_up_names_it(engine, clock, job):
    clock.advance("30 min")
    assert engine.recover()["wake_up_lost"] == 1
    assert kinds(engine, job) == ["accepted", "wake_up_lost"]
