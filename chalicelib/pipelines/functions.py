"""What the functions do with their events: wake-ups, and the ticks of the schedule."""

from datetime import datetime
from typing import Any
from uuid import UUID

from chalice.app import CloudWatchEvent, SQSEvent

from chalicelib import telemetry
from chalicelib.engine import Outage

from . import REMOVERS, context


def work(queue: str, event: SQSEvent) -> None:
    """Work on the job a wake-up names; without one (the minute tick), on whatever is due.

    Only a database that doesn't answer makes it fail: then the message comes back, and in the end reaches the DLQ.
    """
    invocation: Any = event.context  # Chalice declares a dict; it is the Lambda context
    context().engine.work_on(queue, wake_ups(event), lambda: invocation.get_remaining_time_in_millis() / 1000)


def wake_ups(event: SQSEvent) -> list[UUID]:
    """The jobs that messages name; what is no id is logged and acknowledged, for it would be none the next time too."""
    jobs = []
    for record in event:
        try:
            jobs.append(UUID(record.body))
        except ValueError:
            telemetry.log("wake_up_unreadable")
    return jobs


def recover(event: CloudWatchEvent) -> None:
    """Expired leases, lost wake-ups, passed deadlines, owed messages."""
    engine = context().engine
    counts = engine.recover(event_time=event_time(event))
    telemetry.log("recovery", **counts, oldest_snapshot_seconds=round(engine.oldest_snapshot()))


def clean_up(event: CloudWatchEvent) -> None:
    """Remove what the ledger calls garbage, prune by retention, mend graphs that two writes at once have mixed."""
    # With it comes the triple store's client, which the other functions do without.
    from .publication.removal import mend_mixed_graphs

    counts = context().engine.clean_up(event_time=event_time(event), removers=REMOVERS)
    try:
        counts |= mend_mixed_graphs()
    except Outage as error:  # the next run comes in 15 minutes
        telemetry.failure("mending_failed", error)
    telemetry.log("cleanup", **counts)


def catch_up(event: CloudWatchEvent) -> None:
    """Start the schedules that are due."""
    telemetry.log("catch_up", **context().engine.catch_up(event_time=event_time(event)))


def event_time(event: CloudWatchEvent) -> datetime:
    """When EventBridge says that the event happened."""
    return datetime.fromisoformat(event.to_dict()["time"])
