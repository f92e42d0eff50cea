"""Ticks that EventBridge delivers again, wake-ups that SQS gives up, rows that recovery has to pass by."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID

import boto3
import pytest
from moto import mock_aws

from chalicelib.engine import Advance, Cadence, Engine
from chalicelib.engine.sqs import SqsQueues
from chalicelib.settings import Settings
from tests import toy
from tests.toy import Parcel, behaviour, take, work

DAILY = Cadence(every="day", at="10:15", zone="Europe/Berlin")
removed: list[str] = []


def remove(row):
    removed.append(row.locator["key"])


TICKS = {
    "worker": lambda engine: engine.work_on("work", [], lambda: 300),
    "fetcher": lambda engine: engine.work_on("fetch", [], lambda: 300),
    "recovery": lambda engine: engine.recover(),
    "relay": lambda engine: engine.relay(),
    "catch-up": lambda engine: engine.catch_up(),
    "cleanup": lambda engine: engine.clean_up(removers={"s3_object": "tests.integration.engine.test_ticks:remove"}),
}

# What one tick does to the scene: events by kind, messages sent, things removed, rows left.
ONE = {
    "worker": ({"claimed": 4, "advanced": 5, "finished": 4}, 0, 0),
    "fetcher": ({"claimed": 2, "finished": 2}, 0, 0),
    "recovery": ({"wake_up_lost": 3, "worker_lost": 2, "failed": 1}, 6, 0),
    "relay": ({}, 1, 0),
    "catch-up": ({"accepted": 3}, 0, 0),
    "cleanup": ({}, 0, 4),
}


@pytest.fixture
def scene(engine, clock, queues):
    """Something to do for each of them: lost workers and wake-ups, an owed message, garbage, due schedules."""
    removed.clear()

    def pack(leased):
        for number in range(4):
            leased.note("s3_object", {"key": f"scratch {number}"})
        return Advance()

    behaviour["PACK"] = pack
    engine.accept("delivery", Parcel(name="done"))
    work(engine)
    behaviour.clear()
    for number in range(3):
        engine.set_schedule(f"s{number}", "delivery", {"name": f"s{number}"}, DAILY)
        engine.accept("delivery", Parcel(name=f"lost message {number}"))
    for number in range(3):
        take(engine, engine.accept("delivery", Parcel(name=f"lost worker {number}")).job.id, seconds=60)
    engine.cancel(engine.find("parcel:lost worker 2").id)
    clock.set("2026-03-02 09:31:00+00")
    for number in range(2):
        engine.accept("crawl", Parcel(name=f"page {number}"))
    queues.away = True
    engine.accept("tour", Parcel(name="owed"))
    queues.away = False
    queues.sent.clear()
    return lambda: Counter(row["kind"] for row in engine.db.run("select kind from engine.job_event order by id"))


@pytest.mark.parametrize("how", ["once", "five times in a row", "twice at once", "five times at once"])
@pytest.mark.parametrize("tick", TICKS)
def test_T17_a_tick_that_comes_again_has_the_effect_of_one(engine, dsn, settings, queues, scene, tick, how):
    before = scene()
    if how.endswith("at once"):
        number = 2 if how.startswith("twice") else 5
        start = Barrier(number)

        def theirs(_):
            other = Engine(type(engine.db)(dsn), toy.PIPELINES, settings, queues)
            start.wait()
            TICKS[tick](other)
            other.db.close()

        with ThreadPoolExecutor(number) as pool:
            list(pool.map(theirs, range(number)))
    else:
        for _ in range(5 if how.startswith("five") else 1):
            TICKS[tick](engine)
    assert (dict(scene() - before), len(queues.sent), len(removed)) == ONE[tick]
    assert len(set(queues.sent)) == len(queues.sent)


def test_T24_jobs_whose_wake_ups_end_among_dead_letters_end_by_recovery(engine, clock, settings, monkeypatch):
    """Received until the queue gives up, by functions that never ran (throttled): none of it reaches the database."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        sqs = boto3.client("sqs")
        dead = sqs.create_queue(QueueName="leaseway-work-dead")["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 2}}'
        url = sqs.create_queue(
            QueueName="leaseway-work", Attributes={"RedrivePolicy": policy, "VisibilityTimeout": "0"}
        )["QueueUrl"]
        engine.queues = SqsQueues(Settings(work_queue_url=url))

        jobs = [engine.accept("delivery", Parcel(name=str(number))).job.id for number in range(12)]
        while sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            pass

        figure = "ApproximateNumberOfMessages"  # in CloudWatch ApproximateNumberOfMessagesVisible, what the alarm reads
        visible = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=[figure])["Attributes"][figure]
        assert int(visible) == len(jobs)
        assert engine.health().past_bound == 0

        clock.advance("31 min")
        assert engine.recover() == {"wake_up_lost": 12, "sent": 12}
        again = []
        while found := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
            again += [UUID(message["Body"]) for message in found]
            for message in found:
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        engine.work_on("work", again, lambda: 300)

    assert {engine.status(job).status for job in jobs} == {"succeeded"}
    assert {engine.status(job).attempts for job in jobs} == {1}


def test_T06_a_full_batch_that_cannot_be_recovered_is_followed_by_the_next_one(engine, clock, database, break_events):
    """Recovery lists 500 at a time."""
    for number in range(500):
        engine._accept(engine.db, toy.PIPELINES["delivery"], Parcel(name=f"bad{number}"))
    clock.advance("1 s")
    good = engine.accept("delivery", Parcel(name="good")).job.id
    clock.advance("31 min")
    break_events("wake_up_lost")

    counts = engine.recover()

    assert (counts["unrecoverable"], counts["wake_up_lost"]) == (500, 1)
    assert engine.job(good).status == "queued"
    [failed] = database.run("select count(*) as number from engine.failure where code = 'unrecoverable'")
    assert failed["number"] == 500
