"""The life of a job that nothing goes wrong with."""

from tests.toy import Parcel


def test_a_job_is_accepted_worked_on_and_finished(engine, queues, clock):
    job = engine.accept("delivery", Parcel(name="a")).job
    assert (job.state, job.status, job.attempts) == ("REQUESTED", "queued", 0)
    assert queues.sent == [("work", job.id, 0)]

    worked = engine.work("work", job=job.id, until=lambda: 300)

    assert worked.outcome == "finished"
    done = engine.job(job.id)
    assert (done.state, done.status, done.attempts) == ("DELIVERED", "succeeded", 1)
    assert done.run_at is done.locked_until is done.deadline_at is None
    assert [event["kind"] for event in engine.history(job.id)] == ["accepted", "claimed", "advanced", "finished"]
