"""From rows to what callers see."""

from datetime import datetime

from chalicelib.db import Row

from .cadence import Cadence
from .model import REQUESTED, Failure, Job, Pause, Progress, Schedule, Status, Waiting


def job(row: Row) -> Job:
    """A row of engine.job."""
    status: Status = "running"
    if row["finished_at"] is not None:
        status = "succeeded"
    elif row["state"] == REQUESTED:
        status = "queued"
    waiting = None
    if row["waiting_for"] is not None:
        until: datetime | None = row["run_at"] if row["claim_id"] is None and not row["held_back"] else None
        waiting = Waiting(row["waiting_for"], row["waiting_since"], until)
    return Job(
        id=row["id"],
        pipeline=row["pipeline"],
        queue=row["queue"],
        conflict_key=row["conflict_key"],
        subject=row["subject"],
        state=row["state"],
        status=status,
        attempts=row["attempts"],
        progress=Progress(row["records"], row["bytes"], row["total"]),
        version=row["version"],
        result=row["result"],
        accepted_at=row["accepted_at"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        run_at=row["run_at"],
        locked_until=row["locked_until"],
        deadline_at=row["deadline_at"],
        claim_id=row["claim_id"],
        waiting_for=waiting,
        cancel_requested=row["cancel_requested_at"] is not None,
        follow_up=row["follow_up"] is not None,
        schedule=row["schedule"],
    )


def failure(row: Row) -> Failure:
    """A row of engine.failure."""
    return Failure(
        id=row["job_id"],
        pipeline=row["pipeline"],
        conflict_key=row["conflict_key"],
        subject=row["subject"],
        state=row["state"],
        code=row["code"],
        details=row["details"],
        attempts=row["attempts"],
        accepted_at=row["accepted_at"],
        started_at=row["started_at"],
        failed_at=row["failed_at"],
        schedule=row["schedule"],
        requeued_as=row["requeued_as"],
    )


def pause(row: Row) -> Pause:
    """A row of engine.pause."""
    return Pause(pipeline=row["pipeline"], since=row["since"], until=row["until"])


def schedule(row: Row) -> Schedule:
    """A row of engine.schedule."""
    return Schedule(
        key=row["key"],
        pipeline=row["pipeline"],
        subject=row["subject"],
        cadence=Cadence(**row["cadence"]),
        next_due_at=row["next_due_at"],
        last_due_at=row["last_due_at"],
        last_job=row["last_job"],
        last_refusal=row["last_refusal"],
    )
