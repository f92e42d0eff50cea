"""Nothing private is left behind, and no clock but the database's counts."""

import time

import psycopg
import pytest

from chalicelib.engine import Advance, Cadence, Outage, PermanentFailure, Refusal, SubjectBusy, Wait
from tests.toy import Letter, Parcel, behaviour, crash, take, work

PRIVATE = ["token-3f9a", "someone@example.org", "select secret", "/home/someone"]
TEXT = " ".join(PRIVATE)


def raises(error):
    def step(leased):
        raise error

    return step


def sql_error(leased):
    raise psycopg.errors.UniqueViolation(TEXT)


ENDS = {
    "finished": lambda leased: Advance(),
    "an exception": raises(RuntimeError(TEXT)),
    "an error of the database": sql_error,
    "a permanent failure": raises(PermanentFailure("source_denied", sqlstate="42501")),
    "an outage": raises(Outage("source_unreachable")),
    "a wrong return": lambda leased: TEXT,
    "a crash": crash,
    "a result that is no JSON": lambda leased: Advance(wrong=object()),
}


@pytest.mark.parametrize("end", ENDS)
def test_T28_whatever_its_end_nothing_private_stays_in_a_row_or_a_log(engine, clock, admin_database_dsn, capsys, end):
    behaviour["READ"] = ENDS[end]
    job = engine.accept("post", Parcel(name="p"), request=Letter(text=TEXT)).job.id
    for _ in range(8):
        work(engine, job)
        clock.advance("6 min")
        engine.recover()
    clock.advance("31 h")
    engine.recover()
    assert engine.status(job).status in ("succeeded", "failed")

    with psycopg.connect(admin_database_dsn) as admin:
        tables = admin.execute("select oid::regclass::text from pg_class where relkind = 'r' "
                               "and relnamespace = 'engine'::regnamespace")  # fmt: skip
        rows = "\n".join(
            str(row) for (table,) in tables.fetchall() for row in admin.execute(f"select t::text from {table} as t")
        )
        assert admin.execute("select count(*) from engine.job where request is not null").fetchone() == (0,)
    said = capsys.readouterr()
    for private in PRIVATE:
        assert private not in rows + said.out + said.err


def test_T28_cancelled_requeued_and_failed_again_the_payload_is_gone(engine, database):
    job = engine.accept("post", Parcel(name="p"), request=Letter(text=TEXT)).job.id
    engine.cancel(job)
    with pytest.raises(Refusal) as refused:
        engine.requeue(job)
    assert TEXT not in str(refused.value)
    assert database.run("select id from engine.job") == []


def test_T28_the_schema_itself_refuses_a_finished_row_with_a_payload(engine, database):
    job = engine.accept("post", Parcel(name="p"), request=Letter(text=TEXT)).job.id
    with pytest.raises(psycopg.errors.CheckViolation, match="finished_has_no_payload"):
        database.run(
            "update engine.job set finished_at = engine.clock(), run_at = null, locked_until = null, "
            "deadline_at = null, claim_id = 1 where id = %(job)s",
            job=job,
        )


@pytest.mark.parametrize(
    ("constraint", "change"),
    [
        ("unfinished_has_its_times", "run_at = null"),
        ("unfinished_has_its_times", "locked_until = null"),
        ("unfinished_has_its_times", "deadline_at = null"),
        ("unfinished_has_its_times", "finished_at = engine.clock(), claim_id = 1, state = 'PACK'"),
        (
            "finished_keeps_its_fence",
            "finished_at = engine.clock(), run_at = null, locked_until = null, deadline_at = null",
        ),
        ("act_by_is_not_after_the_deadline", "locked_until = deadline_at + interval '1 s'"),
        ("claim_has_an_owner", "claim_id = 1, state = 'PACK'"),
        ("claim_has_an_owner", "lease_owner = uuidv7()"),
        ("attempts_are_capped", "attempts = 4, state = 'PACK'"),
        ("attempts_are_capped", "attempts = -1"),
        ("requested_has_an_attempt_left", "attempts = 3"),
        ("requested_is_unowned", "claim_id = 1, lease_owner = uuidv7()"),
        ("waiting_has_a_since", "waiting_for = 'export'"),
        ("queue_is_known", "queue = 'urgent'"),
        ("follow_up_has_a_conflict_key", "follow_up = '{}', conflict_key = null"),
    ],
)
def test_the_schema_refuses_what_breaks_an_invariant(engine, database, constraint, change):
    engine.accept("delivery", Parcel(name="a"))
    with pytest.raises(psycopg.errors.CheckViolation, match=constraint):
        database.run(f"update engine.job set {change}")


def test_the_schema_refuses_a_second_unfinished_job_on_a_conflict_key(engine, database):
    engine.accept("delivery", Parcel(name="a"))
    with pytest.raises(psycopg.errors.UniqueViolation, match="job_conflict_key"):
        database.run(
            "insert into engine.job (pipeline, queue, conflict_key, subject, queue_budget, run_budget, accepted_at,"
            " run_at, locked_until, deadline_at) select pipeline, queue, conflict_key, subject, queue_budget,"
            " run_budget, accepted_at, run_at, locked_until, deadline_at from engine.job"
        )


def scenario(engine, clock):
    """Accept, work, wait, crash, recover, start by schedule, and what there is to see of it."""
    seen = []

    def look(job):
        found = engine.job(job)
        times = (found.accepted_at, found.started_at, found.run_at, found.locked_until, found.deadline_at)
        seen.append([found.state, found.attempts, *(at and at - found.accepted_at for at in times)])

    job = engine.accept("delivery", Parcel(name="a")).job.id
    look(job)
    behaviour["PACK"] = lambda leased: Wait(30)
    work(engine, job)
    look(job)
    clock.advance("30 s")
    leased = take(engine, job, seconds=60)
    clock.advance("20 s")
    leased.heartbeat()
    look(job)
    clock.advance("2 min")
    engine.recover()
    look(job)
    with pytest.raises(SubjectBusy):
        engine.accept("recall", Parcel(name="a"))
    engine.cancel(job)
    began = clock.now()
    daily = Cadence(every="day", at="09:30", zone="UTC")
    clock.advance(engine.set_schedule("parcel:s", "delivery", {"name": "s"}, daily).next_due_at - began)
    assert engine.catch_up() == {"started": 1}
    schedule = engine.get_schedule("parcel:s")
    seen.append([at - began for at in (schedule.last_due_at, schedule.next_due_at)])
    look(schedule.last_job)
    engine.cancel(schedule.last_job)
    engine.delete_schedule("parcel:s")
    return seen


@pytest.mark.parametrize("skew", [-600, 600])
def test_T14_a_workers_clock_ten_minutes_off_changes_nothing(engine, clock, monkeypatch, skew):
    true = scenario(engine, clock)
    clock.set("2026-03-02 09:00:00+00")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + skew)
    assert scenario(engine, clock) == true
