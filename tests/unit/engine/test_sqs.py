"""Wake-ups over SQS: what counts as sent, and how long a caller waits."""

from uuid import uuid4

from chalicelib.engine.sqs import SqsQueues
from chalicelib.settings import Settings


class Client:
    """An SQS that refuses every second message and remembers the rest."""

    def __init__(self):
        self.entries = []

    def send_message_batch(self, QueueUrl, Entries):  # noqa: N803 - boto3's spelling
        self.entries += Entries
        return {
            "Successful": [{"Id": entry["Id"]} for entry in Entries[::2]],
            "Failed": [{"Id": entry["Id"], "Code": "Throttled"} for entry in Entries[1::2]],
        }


def test_only_what_was_acknowledged_counts_and_no_delay_is_over_fifteen_minutes():
    client, jobs = Client(), [uuid4() for _ in range(4)]
    queues = SqsQueues(Settings(work_queue_url="http://sqs"), lambda **config: client)
    assert queues.send("work", [(job, 1000) for job in jobs]) == {jobs[0], jobs[2]}
    assert {entry["DelaySeconds"] for entry in client.entries} == {900}


def test_a_caller_of_the_api_waits_for_sqs_three_tenths_of_a_second_to_connect_and_one_to_read():
    made = []
    queues = SqsQueues(Settings(work_queue_url="http://sqs"), lambda **config: (made.append(config), Client())[1])
    queues.send("work", [(uuid4(), 0)], inline=True)
    assert made == [{"connect_timeout": 0.3, "read_timeout": 1, "retries": {"total_max_attempts": 1}}]
