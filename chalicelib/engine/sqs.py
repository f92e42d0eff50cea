"""Wake-ups over SQS: the body is the job's id and nothing else."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any
from uuid import UUID

from chalicelib.settings import Settings

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

LONGEST_DELAY = 900
"""Seconds: SQS's own limit."""


def _client(**config: Any) -> "SQSClient":
    # Imported at first use: boto3 costs 0.2 s of a cold start, and most invocations send nothing.
    import boto3
    from botocore.config import Config

    client: SQSClient = boto3.client("sqs", config=Config(**config))
    return client


class SqsQueues:
    """Sends in batches of ten; what isn't acknowledged stays owed."""

    def __init__(self, settings: Settings, client: Callable[..., "SQSClient"] = _client):
        self._names = {"work": settings.work_queue, "fetch": settings.fetch_queue}
        self._urls = {"work": settings.work_queue_url, "fetch": settings.fetch_queue_url}
        self._make = client

    @cached_property
    def _patient(self) -> "SQSClient":
        return self._make(connect_timeout=2, read_timeout=5, retries={"total_max_attempts": 3})

    @cached_property
    def _hasty(self) -> "SQSClient":
        # The caller of the API waits for this one, and the relay sends whatever it doesn't.
        return self._make(connect_timeout=0.3, read_timeout=1, retries={"total_max_attempts": 1})

    def send(self, queue: str, messages: Sequence[tuple[UUID, int]], *, inline: bool = False) -> set[UUID]:
        """Send (job, delay in seconds) pairs; the ids that SQS acknowledged."""
        client = self._hasty if inline else self._patient
        url = self._urls[queue] or client.get_queue_url(QueueName=self._names[queue])["QueueUrl"]
        self._urls[queue] = url
        acknowledged: set[UUID] = set()
        for start in range(0, len(messages), 10):
            answer = client.send_message_batch(
                QueueUrl=url,
                Entries=[
                    {"Id": str(job), "MessageBody": str(job), "DelaySeconds": min(delay, LONGEST_DELAY)}
                    for job, delay in messages[start : start + 10]
                ],
            )
            acknowledged |= {UUID(entry["Id"]) for entry in answer.get("Successful", [])}
        return acknowledged
