"""What operators do: cancel, requeue, purge, pause, and what they must not be able to do."""

from dataclasses import replace
from datetime import timedelta

import psycopg
import pytest

from chalicelib.db import Database
from chalicelib.engine import Engine, PermanentFailure, Refusal, SubjectBusy
from chalicelib.engine.lease import sql
from chalicelib.engine.refusals import refusing
from tests import toy
from tests.toy import Letter, Parcel, behaviour, kinds, take, work


@pytest.fixture
def failed(engine):
    """A job that failed."""

    def fail(leased):
        raise PermanentFailure("source_denied")

    behaviour["PACK"] = fail
    job = engine.accept("delivery", Parcel(name="a", revision=3)).job.id
    work(engine, job)
    behaviour.clear()
    return job


def test_T07_requeueing_while_a_newer_job_is_active_is_refused_and_changes_nothing(engine, failed):
    active = engine.accept("delivery", Parcel(name="a", revision=4)).job
    before = engine.failure(failed), engine.job(active.id), engine.history(active.id)

    with pytest.raises(SubjectBusy) as refused:
        engine.requeue(failed)

    assert (refused.value.code, refused.value.active) == ("subject_busy", active.id)
    assert (engine.failure(failed), engine.job(active.id), engine.history(active.id)) == before


def test_a_failure_is_requeued_as_a_new_job_with_a_fresh_budget(engine, queues, clock, failed):
    clock.advance("3 days")
    made = engine.requeue(failed)
    assert made.created
    assert (made.job.subject, made.job.attempts) == (Parcel(name="a", revision=3).model_dump(), 0)
    assert made.job.deadline_at > clock.now()
    assert engine.failure(failed).requeued_as == made.job.id
    assert queues.of(made.job.id) == [0]
    assert work(engine, made.job.id) == "finished"


def test_what_took_a_payload_cannot_be_requeued(engine):
    job = engine.accept("post", Parcel(name="p"), request=Letter(text="dear")).job.id
    engine.cancel(job)
    with pytest.raises(Refusal) as refused:
        engine.requeue(job)
    assert refused.value.code == "payload_erased"


def test_what_did_not_fail_cannot_be_requeued_though_another_one_did(engine, failed):
    job = engine.accept("delivery", Parcel(name="b")).job.id
    with pytest.raises(Refusal) as refused:
        engine.requeue(job)
    assert refused.value.code == "not_found"


def test_what_this_release_no_longer_knows_cannot_be_requeued(engine, database, failed):
    database.run("update engine.failure set subject = '{\"parcel\": 1}'")
    with pytest.raises(Refusal) as refused:
        engine.requeue(failed)
    assert (refused.value.code, "older release" in refused.value.detail) == ("conflict", True)

    database.run("update engine.failure set pipeline = 'pigeon'")
    with pytest.raises(Refusal) as refused:
        engine.requeue(failed)
    assert (refused.value.code, "pigeon" in refused.value.detail) == ("conflict", True)
    assert engine.failure(failed).requeued_as is None


def test_a_failure_stays_until_it_is_purged(engine, clock, failed):
    clock.advance("400 days")
    engine.clean_up(removers={})
    assert engine.failure(failed)
    assert engine.purge(failed)
    assert not engine.purge(failed)
    assert engine.status(failed) is None


def test_failures_are_listed_newest_first_by_pipeline_and_subject(engine, failed):
    other = engine.accept("recall", Parcel(name="b")).job.id
    engine.cancel(other)
    assert [failure.id for failure in engine.failures()] == [other, failed]
    assert [failure.id for failure in engine.failures(limit=1)] == [other]
    assert [failure.id for failure in engine.failures(after=other)] == [failed]
    assert [failure.id for failure in engine.failures(pipeline="recall")] == [other]
    assert [failure.id for failure in engine.failures(conflict_key="parcel:a")] == [failed]
    assert engine.failures(code="unrecoverable") == []


def test_an_unowned_job_is_cancelled_at_once(engine):
    job = engine.accept("delivery", Parcel(name="a")).job.id
    assert engine.cancel(job) == "cancelled"
    assert engine.failure(job).code == "cancelled"
    assert kinds(engine, job) == ["accepted", "failed"]
    assert engine.cancel(job) == "failed"
    assert work(engine, job) == "nothing"
    assert engine.db.run("select * from engine.outbox") == []


def test_an_owned_job_is_cancelled_by_its_owner_even_while_it_holds_the_row(engine, dsn):
    job = engine.accept("delivery", Parcel(name="a")).job.id
    leased = take(engine, job)
    other = Database(dsn)
    with other.transaction() as tx:
        leased.hold(tx)  # the owner is in the middle of its short transaction: the mark doesn't wait for it
        assert engine.cancel(job) == "requested"
    assert engine.cancel(job) == "requested"
    assert kinds(engine, job) == ["accepted", "claimed", "cancel_requested", "cancel_requested"]
    other.close()


def test_a_job_that_changes_hands_while_it_is_cancelled_is_asked_again(engine, monkeypatch):
    job = engine.accept("delivery", Parcel(name="a")).job.id
    one, asked = engine.db.one, []

    def changes_hands(statement, /, **params):
        if statement == sql.cancel_job and not asked:
            asked.append(1)
            return None
        return one(statement, **params)

    monkeypatch.setattr(engine.db, "one", changes_hands)
    assert engine.cancel(job) == "cancelled"


def test_cancelling_what_is_over_or_unknown_says_so(engine):
    job = engine.accept("delivery", Parcel(name="a")).job.id
    work(engine, job)
    assert engine.cancel(job) == "finished"
    engine.db.run("delete from engine.job")
    assert engine.cancel(job) == "unknown"


@pytest.mark.parametrize("hours", [0, -1, 169, float("nan")])
def test_a_pause_has_an_end_within_seven_days(engine, hours):
    with pytest.raises(Refusal) as refused:
        engine.pause("delivery", hours=hours)
    assert refused.value.field == "hours"
    assert engine.pauses() == []


def test_not_even_in_instalments(engine, clock):
    engine.pause("delivery", hours=168)
    clock.advance("1 h")
    with pytest.raises(Refusal) as refused:
        engine.pause("delivery", hours=168)
    assert (refused.value.code, refused.value.field) == ("bad_parameter", "hours")
    assert engine.pause("delivery", hours=2).until == clock.now() + timedelta(hours=2)


def test_only_a_pipeline_that_exists_can_be_paused(engine):
    with pytest.raises(Refusal) as refused:
        engine.pause("delivry")
    assert refused.value.field == "pipeline"
    assert "delivery" in refused.value.detail


def test_a_part_is_paused_with_its_whole_and_never_alone(engine, clock, settings, queues):
    """Whoever waits for a part that nobody claims would spend his run budget, and fail in the pause."""
    pipelines = toy.PIPELINES | {"tour": replace(toy.PIPELINES["tour"], part_of="delivery")}
    engine = Engine(engine.db, pipelines, settings, queues)
    with pytest.raises(Refusal) as refused:
        engine.pause("tour")
    assert (refused.value.field, "tour" in refused.value.detail) == ("pipeline", False)
    jobs = [engine.accept(pipeline, Parcel(name="a")).job.id for pipeline in ("delivery", "tour")]
    before = [engine.status(job).deadline_at for job in jobs]

    engine.pause("delivery", hours=2)
    assert [pause.pipeline for pause in engine.pauses()] == ["delivery", "tour"]
    assert [take(engine, job) for job in jobs] == [None, None]
    clock.advance("1 h")
    assert engine.resume("delivery")

    assert engine.pauses() == []
    assert [engine.status(job).deadline_at for job in jobs] == [end + timedelta(hours=1) for end in before]
    assert not engine.resume("delivery")


def test_a_part_and_its_whole_are_ended_together_by_recovery_or_not_yet(engine, clock, settings, queues, other):
    """A part that were paused for longer than its whole would spend its run budget."""
    engine = Engine(
        engine.db, toy.PIPELINES | {"tour": replace(toy.PIPELINES["tour"], part_of="post")}, settings, queues
    )
    part = engine.accept("tour", Parcel(name="a")).job.id
    engine.pause("post", hours=1)
    clock.advance("2 h")

    with other.transaction() as tx:
        tx.run("select from engine.job where id = %(part)s for update", part=part)
        assert engine.recover() == {"pauses_not_ended": 1, "sent": 0}
    assert [pause.pipeline for pause in engine.pauses()] == ["post", "tour"]

    engine.db.run("update engine.pause set until = until + interval '2 hours' where pipeline = 'tour'")
    assert engine.recover() == {"sent": 0}
    clock.advance("2 h")
    assert engine.recover()["pauses_ended"] == 2
    assert engine.pauses() == []


def test_after_a_restore_the_fences_are_lifted_above_the_highest_found_outside(engine):
    job = engine.accept("delivery", Parcel(name="a")).job.id
    assert engine.restored(5_000_000) == 5_000_001
    assert take(engine, job).claim_id == 5_000_001
    assert engine.restored(7) == 5_000_002
    assert engine.fence(engine.db) == 5_000_002


def test_another_constraint_is_no_refusal(engine):
    with pytest.raises(psycopg.errors.CheckViolation), refusing():
        engine.db.run("insert into engine.ledger (job_id, claim_id, kind, locator, noted_at, status) "
                      "values (uuidv7(), 1, 'x', '{}', now(), 'lost')")  # fmt: skip
