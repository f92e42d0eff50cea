"""Schedules and their catch-up: each slot once, never a storm, nothing lost at a crash."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Barrier

import psycopg
import pytest

from chalicelib import telemetry
from chalicelib.db import Database, DatabaseAway, Transaction
from chalicelib.engine import Cadence, Engine
from chalicelib.engine.lease import sql
from tests import toy
from tests.toy import Parcel, take, work

DAILY = Cadence(every="day", at="02:00", zone="Europe/Berlin")


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def overdue(engine, number, prefix="s"):
    """So many daily schedules."""
    for count in range(number):
        engine.set_schedule(f"{prefix}{count:02}", "delivery", {"name": f"{prefix}{count}"}, DAILY)


def started(engine):
    return engine.db.run("select * from engine.job where schedule is not null order by id")


def work_all(engine):
    engine.work_on("work", [], lambda: 300)


def test_a_schedule_is_made_changed_listed_and_removed(engine, clock):
    clock.set("2026-03-02 09:00:00+00")
    made = engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    assert (made.next_due_at, made.cadence, made.last_job) == (at("2026-03-03 01:00"), DAILY, None)
    weekly = Cadence(every="week", at="06:30", on="sunday", zone="Asia/Tokyo")
    changed = engine.set_schedule("parcel:a", "delivery", {"name": "a"}, weekly)
    assert changed.next_due_at == at("2026-03-07 21:30")
    assert engine.get_schedule("parcel:a") == changed
    other = engine.set_schedule("parcel:b", "delivery", {"name": "b"}, DAILY)
    assert engine.schedules() == [changed, other]
    assert engine.get_schedule("parcel:b") == other
    assert engine.delete_schedule("parcel:a")
    assert engine.schedules() == [other]
    assert not engine.delete_schedule("parcel:a")
    assert engine.get_schedule("parcel:a") is None


def test_a_due_schedule_starts_a_job_of_the_subject_as_it_is_now(engine, clock, queues):
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    assert engine.catch_up() == {}
    clock.set("2026-03-03 01:00:05+00")
    assert engine.catch_up() == {"started": 1}
    [job] = started(engine)
    assert (job["subject"], job["schedule"]) == (Parcel(name="a", revision=7).model_dump(), "parcel:a")
    schedule = engine.get_schedule("parcel:a")
    assert schedule.last_due_at == at("2026-03-03 01:00")
    assert schedule.next_due_at == at("2026-03-04 01:00")
    assert schedule.last_job == job["id"]
    engine.relay()
    assert queues.of(job["id"]) == [0]
    assert engine.catch_up() == {}


def test_T16_missed_windows_are_made_up_for_once_and_under_the_cap(engine, clock):
    overdue(engine, 51)
    clock.set("2026-03-09 15:00:00+00")  # seven windows missed by each

    counts = []
    for _ in range(4):
        counts.append(engine.catch_up())
        assert len(started(engine)) == sum(count.get("started", 0) for count in counts)
        work_all(engine)

    assert [count.get("started", 0) for count in counts] == [20, 20, 11, 0]
    assert {schedule.next_due_at for schedule in engine.schedules()} == {at("2026-03-10 01:00")}


def test_T16_jobs_that_do_not_finish_keep_the_others_waiting(engine, clock):
    overdue(engine, 51)
    clock.set("2026-03-03 15:00:00+00")
    assert engine.catch_up() == {"started": 20, "cap_reached": 1}
    for _ in range(5):
        assert engine.catch_up() == {"cap_reached": 1}
    work(engine)
    work(engine)
    assert engine.catch_up() == {"started": 2, "cap_reached": 1}


def test_T16_jobs_that_no_schedule_started_do_not_count(engine, clock):
    overdue(engine, 3)
    for number in range(20):
        engine.accept("delivery", Parcel(name=f"by hand {number}"))
    clock.set("2026-03-03 15:00:00+00")
    assert engine.catch_up() == {"started": 3}


def test_T16_a_pause_of_one_pipeline_stops_no_schedule_of_another(engine, clock):
    """Neither by what it holds already, nor by what would come."""
    overdue(engine, 51)
    engine.set_schedule("late", "tour", {"name": "late"}, Cadence(every="day", at="14:00", zone="Europe/Berlin"))
    clock.set("2026-03-03 12:00:00+00")
    assert engine.catch_up() == {"started": 20, "cap_reached": 1}
    engine.pause("delivery", hours=168)
    clock.set("2026-03-03 15:00:00+00")
    assert engine.catch_up() == {"started": 1}
    assert engine.get_schedule("late").last_job
    assert engine.catch_up() == {}


@pytest.mark.parametrize("statement", ["lock_catch_up", "list_pauses", "count_scheduled_jobs", "pick_due_schedule"])
def test_a_catch_up_that_fails_before_it_has_a_schedule_ends(engine, clock, monkeypatch, statement):
    """A right or a migration is missing: it would come again at once, a hundred thousand times in a run."""
    overdue(engine, 2)
    clock.set("2026-03-03 12:00:00+00")
    asked = []
    monkeypatch.setitem(sql._texts, statement, "select missing")
    monkeypatch.setattr(telemetry, "failure", lambda *said, **more: asked.append(said))
    with pytest.raises(psycopg.errors.UndefinedColumn):
        engine.catch_up()
    assert asked == []
    monkeypatch.undo()
    assert engine.catch_up() == {"started": 2}


def test_T16_the_schedules_of_a_paused_pipeline_stay_due_until_the_pause_has_ended(engine, clock):
    overdue(engine, 2)
    engine.pause("delivery", hours=48)
    clock.set("2026-03-04 08:59:59+00")
    assert engine.catch_up() == {}
    assert {schedule.next_due_at for schedule in engine.schedules()} == {at("2026-03-03 01:00")}
    clock.advance("1 s")
    assert engine.catch_up() == {}  # its end is recovery's
    engine.recover()
    assert engine.catch_up() == {"started": 2}
    assert {schedule.next_due_at for schedule in engine.schedules()} == {at("2026-03-05 01:00")}


def test_T16_while_everything_is_paused_no_schedule_starts(engine, clock):
    overdue(engine, 2)
    engine.set_schedule("tour", "tour", {"name": "t"}, DAILY)
    engine.pause()
    clock.set("2026-03-03 15:00:00+00")
    assert engine.catch_up() == {}
    engine.resume()
    assert engine.catch_up() == {"started": 3}


@pytest.mark.parametrize("paused", ["delivery", "*"])
def test_T16_what_a_pause_held_counts_again_at_its_end(engine, clock, paused):
    """So there may be more than the cap then, but nothing starts before there are fewer."""
    overdue(engine, 15)
    clock.set("2026-03-03 15:00:00+00")
    assert engine.catch_up() == {"started": 15}
    for number in range(20):
        engine.set_schedule(
            f"t{number:02}", "tour", {"name": "t"}, Cadence(every="day", at="01:00", zone="Europe/Berlin")
        )
    engine.pause(paused)
    clock.set("2026-03-04 08:00:00+00")
    assert engine.catch_up() == ({} if paused == "*" else {"started": 20, "cap_reached": 1})
    engine.resume(paused)
    assert engine.catch_up() == ({"started": 5} if paused == "*" else {}) | {"cap_reached": 1}


def test_T16_who_is_at_work_counts_through_a_pause(engine, clock):
    overdue(engine, 20)
    clock.set("2026-03-03 15:00:00+00")
    assert engine.catch_up() == {"started": 20, "cap_reached": 1}
    take(engine)
    engine.pause("delivery")
    for number in range(20):
        engine.set_schedule(f"t{number:02}", "tour", {"name": "t"}, DAILY)
    clock.set("2026-03-04 08:00:00+00")
    assert engine.catch_up() == {"started": 19, "cap_reached": 1}


def test_T17_five_ticks_at_once_have_the_effect_of_one_and_keep_the_cap(engine, clock, dsn, settings, queues):
    overdue(engine, 51)
    clock.set("2026-03-03 15:00:00+00")
    start = Barrier(5)

    def tick(_):
        database = Database(dsn)
        theirs = Engine(database, toy.PIPELINES, settings, queues)
        start.wait()
        counts = theirs.catch_up()
        database.close()
        return counts.get("started", 0)

    with ThreadPoolExecutor(5) as pool:
        assert sum(pool.map(tick, range(5))) == 20
    assert len(started(engine)) == 20
    assert len({job["schedule"] for job in started(engine)}) == 20


def test_T17_a_tick_that_meets_another_leaves_the_schedules_to_it_and_has_not_finished(engine, clock, dsn):
    overdue(engine, 2)
    clock.set("2026-03-03 15:00:00+00")
    other = Database(dsn)
    with other.transaction() as tx:
        assert tx.run(sql.lock_catch_up)
        assert engine.catch_up() == {"in_other_hands": 1}
    assert started(engine) == []
    assert engine.health().runs["catch_up"].finished_at is None
    assert engine.catch_up() == {"started": 2}
    other.close()


@pytest.mark.parametrize("boundary", range(10))
def test_T18_a_crash_between_any_two_statements_loses_no_window_and_doubles_none(engine, clock, monkeypatch, boundary):
    overdue(engine, 2)
    clock.set("2026-03-03 15:00:00+00")
    statements = []

    class Dying(Transaction):
        def run(self, sql, /, **params):
            if len(statements) == boundary:
                statements.append("dead")
                raise DatabaseAway
            statements.append(sql)
            return super().run(sql, **params)

    @contextmanager
    def transaction():
        connection = engine.db._open()
        with connection.transaction():
            yield Dying(connection)

    monkeypatch.setattr(engine.db, "transaction", transaction)
    with pytest.raises(DatabaseAway):
        engine.catch_up()
    monkeypatch.undo()
    for job in started(engine):
        assert engine.get_schedule(job["schedule"]).last_job == job["id"]

    engine.catch_up()

    assert sorted(job["schedule"] for job in started(engine)) == ["s00", "s01"]
    assert {schedule.next_due_at for schedule in engine.schedules()} == {at("2026-03-04 01:00")}


@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        ("Europe/Berlin", "2026-03-26"),
        ("Europe/Berlin", "2026-10-22"),
        ("America/New_York", "2026-03-05"),
        ("America/New_York", "2026-10-29"),
        ("Australia/Lord_Howe", "2026-04-02"),
        ("Australia/Lord_Howe", "2026-10-01"),
    ],
)
def test_T19_over_the_edges_of_summer_time_and_a_clock_that_steps_back_each_slot_fires_once(engine, clock, zone, begin):
    cadence = Cadence(every="day", at="02:15", zone=zone)
    clock.set(f"{begin} 00:00:00+00")
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, cadence)
    slots, due = [], at(f"{begin} 00:00")
    while len(slots) < 6:
        slots.append(due := cadence.next_after(due))

    fired = []
    for slot in slots:
        for seconds in (-1, 0, 45, -45, 10, 600):  # a tick just before, at it, and 90 s back
            clock.set((slot + timedelta(seconds=seconds)).isoformat())
            if engine.catch_up():
                fired.append(engine.get_schedule("parcel:a").last_due_at)
                work_all(engine)

    assert fired == slots
    assert len(started(engine)) == len(slots)


def test_a_schedule_whose_subject_is_busy_moves_on_without_a_job_of_its_own(engine, clock):
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    engine.set_schedule("parcel:b", "recall", {"name": "b"}, DAILY)
    engine.accept("delivery", Parcel(name="a"))
    engine.accept("delivery", Parcel(name="b"))
    clock.set("2026-03-03 15:00:00+00")
    assert engine.catch_up() == {"busy": 2}
    assert started(engine) == []
    assert [(s.next_due_at, s.last_job, s.last_refusal) for s in engine.schedules()] == [
        (at("2026-03-04 01:00"), None, None),
        (at("2026-03-04 01:00"), None, "subject_busy"),
    ]


def test_a_schedule_whose_subject_is_gone_moves_on_and_says_why(engine, clock):
    engine.set_schedule("parcel:gone", "delivery", {"name": "gone"}, DAILY)
    clock.set("2026-03-03 15:00:00+00")
    assert engine.catch_up() == {"refused": 1}
    assert engine.get_schedule("parcel:gone").last_refusal == "not_found"


def test_a_broken_schedule_is_passed_over_and_blocks_nobody(engine, clock):
    engine.set_schedule("bad", "delivery", {"nonsense": 1}, DAILY)
    overdue(engine, 2)
    engine.db.run("update engine.schedule set next_due_at = next_due_at - interval '1 h' where key = 'bad'")
    clock.set("2026-03-03 15:00:00+00")
    assert engine.catch_up() == {"passed_over": 1, "started": 2}


def test_catch_up_is_bounded_by_time(engine, clock, monkeypatch):
    overdue(engine, 5)
    clock.set("2026-03-03 15:00:00+00")
    accept = engine._accept
    monkeypatch.setattr(engine, "_accept", lambda *args, **more: (clock.advance("20 s"), accept(*args, **more))[1])
    assert engine.catch_up() == {"started": 3}


def test_OD_53_after_a_month_of_slow_runs_a_daily_schedule_is_where_it_was(engine, clock):
    clock.set("2026-04-30 12:00:00+00")
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    slots = []
    for _ in range(30):
        clock.set((engine.get_schedule("parcel:a").next_due_at + timedelta(seconds=50)).isoformat())
        assert engine.catch_up() == {"started": 1}
        clock.advance("15 min")
        work_all(engine)
        slots.append(engine.get_schedule("parcel:a").last_due_at)
    assert slots == [at("2026-05-01 00:00") + timedelta(days=number) for number in range(30)]


def test_OD_54_the_next_run_follows_the_new_cadence_and_off_means_off(engine, clock):
    clock.set("2026-03-02 09:00:00+00")
    weekly = Cadence(every="week", at="02:00", on="sunday", zone="Europe/Berlin")
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, weekly)
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    clock.set("2026-03-03 01:00:00+00")
    assert engine.catch_up() == {"started": 1}
    work_all(engine)
    engine.delete_schedule("parcel:a")
    clock.advance("40 days")
    assert engine.catch_up() == {}


def test_a_schedule_that_is_put_again_as_it_is_keeps_the_slot_that_is_due(engine, clock):
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    clock.set("2026-03-03 02:00:00+00")
    due = engine.get_schedule("parcel:a").next_due_at
    again = engine.set_schedule("parcel:a", "delivery", {"name": "b"}, DAILY)
    assert again.next_due_at == due
    engine.catch_up()
    assert engine.find("parcel:b")


def test_a_slot_of_a_clock_that_was_years_ahead_is_mended_by_putting_the_schedule_again(engine, clock):
    clock.set("2031-01-01 00:00:00+00")
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    clock.set("2026-03-02 09:00:00+00")
    again = engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    assert again.next_due_at == at("2026-03-03 01:00")


def test_a_slot_that_is_used_while_the_schedule_is_put_again_does_not_come_again(engine, clock, monkeypatch):
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    clock.set("2026-03-03 00:59:59+00")
    run = engine.db.run

    def used_meanwhile(statement, /, **params):
        if statement == sql.set_schedule:
            monkeypatch.undo()
            clock.advance("2 s")
            assert engine.catch_up() == {"started": 1}
        return run(statement, **params)

    monkeypatch.setattr(engine.db, "run", used_meanwhile)
    again = engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    assert again.next_due_at == at("2026-03-04 01:00")


def test_nor_does_one_that_was_used_before_the_clock_stepped_back(engine, clock):
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    clock.set("2026-03-03 01:00:05+00")
    assert engine.catch_up() == {"started": 1}
    clock.advance("-1 h")
    again = engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    assert again.next_due_at == at("2026-03-04 01:00")


def test_nor_does_one_that_a_late_run_has_made_up_for(engine, clock):
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    clock.set("2026-03-04 01:00:05+00")
    assert engine.catch_up() == {"started": 1}  # of the day before
    clock.advance("-1 h")
    again = engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    assert again.next_due_at == at("2026-03-05 01:00")


def test_OD_56_three_missed_days_are_one_run_and_then_the_usual_time(engine, clock):
    clock.set("2026-03-02 09:00:00+00")
    engine.set_schedule("parcel:a", "delivery", {"name": "a"}, DAILY)
    clock.set("2026-03-05 12:00:00+00")
    assert engine.catch_up() == {"started": 1}
    work_all(engine)
    assert engine.catch_up() == {}
    assert engine.get_schedule("parcel:a").next_due_at == at("2026-03-06 01:00")
