"""Wake-ups over SQS, with a simulated one."""

from uuid import uuid4

import boto3
import pytest
from moto import mock_aws

from chalicelib.engine.sqs import SqsQueues, _client
from chalicelib.settings import Settings


@pytest.fixture
def sqs(monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    with mock_aws():
        yield boto3.client("sqs")


def receive(sqs, url):
    found = []
    while batch := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        found += [message["Body"] for message in batch]
    return found


@pytest.mark.parametrize("inline", [True, False])
def test_messages_are_job_ids_sent_in_batches_of_ten(sqs, inline):
    url = sqs.create_queue(QueueName="leaseway-work")["QueueUrl"]
    jobs = [uuid4() for _ in range(23)]
    acknowledged = SqsQueues(Settings()).send("work", [(job, 0) for job in jobs], inline=inline)
    assert acknowledged == set(jobs)
    assert sorted(receive(sqs, url)) == sorted(map(str, jobs))


def test_a_queue_whose_address_is_given_is_not_looked_up(sqs):
    url = sqs.create_queue(QueueName="another-name")["QueueUrl"]
    job = uuid4()
    assert SqsQueues(Settings(fetch_queue_url=url)).send("fetch", [(job, 0)]) == {job}
    assert receive(sqs, url) == [str(job)]


def test_the_client_is_made_with_what_it_is_told(sqs):
    assert _client(connect_timeout=0.3).meta.config.connect_timeout == 0.3
