"""The engine's acts, one method each."""

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from chalicelib.db import Database, Row, Sql
from chalicelib.settings import Settings

from .cadence import Cadence
from .lease import Leased
from .model import Accepted, Failure, Health, Job, Outcome, Pause, Pipeline, Queues, Removers, Schedule, Worked


class Engine:
    """Accepts jobs, has them worked on, and sees to it that each one ends."""

    def __init__(self, db: Database, pipelines: Mapping[str, Pipeline], settings: Settings, queues: Queues):
        self.db = db
        self.pipelines = pipelines
        self.settings = settings
        self.queues = queues

    def accept(
        self,
        pipeline: str,
        subject: BaseModel,
        *,
        request: BaseModel | None = None,
        schedule: str | None = None,
        tx: Sql | None = None,
    ) -> Accepted:
        """Accept a job; raises SubjectBusy. With `tx` in the caller's transaction, and nothing is sent yet."""
        raise NotImplementedError

    def relay(self, *, inline_job: UUID | None = None) -> int:
        """Send the wake-ups that are owed, or one of them, best effort."""
        raise NotImplementedError

    def claim(self, queue: str, *, job: UUID | None, ask: UUID, lease: timedelta) -> Leased[Any] | None:
        """Claim the job if it is due, else the oldest due one of the queue; the same ask gets the same claim."""
        raise NotImplementedError

    def work(self, queue: str, *, job: UUID | None, until: Callable[[], float]) -> Worked:
        """Claim one job and run its steps; `until` gives the seconds left of this invocation."""
        raise NotImplementedError

    def work_on(self, queue: str, wake_ups: list[UUID], remaining: Callable[[], float]) -> list[Worked]:
        """Work on each wake-up; without any (the minute tick) on what is due until the time is nearly up."""
        raise NotImplementedError

    def recover(self, *, event_time: datetime | None = None) -> dict[str, int]:
        """Expired leases, lost wake-ups, passed deadlines, ended pauses, owed messages."""
        raise NotImplementedError

    def clean_up(self, *, event_time: datetime | None = None, removers: Removers) -> dict[str, int]:
        """Remove what the ledger calls garbage; prune by retention."""
        raise NotImplementedError

    def catch_up(self, *, event_time: datetime | None = None) -> dict[str, int]:
        """Start the schedules that are due, as many as the cap leaves room for."""
        raise NotImplementedError

    def job(self, id: UUID) -> Job | None:
        """A job that is unfinished or succeeded."""
        raise NotImplementedError

    def failure(self, id: UUID) -> Failure | None:
        """The record of a job that failed."""
        raise NotImplementedError

    def status(self, id: UUID) -> Job | Failure | None:
        """Whatever became of a job."""
        raise NotImplementedError

    def find(self, conflict_key: str, pipeline: str | None = None) -> Job | None:
        """The unfinished job that holds the conflict key."""
        raise NotImplementedError

    def history(self, id: UUID) -> list[Row]:
        """What happened to a job, oldest first: at, kind, state, claim_id, attempts, details."""
        raise NotImplementedError

    def jobs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, after: UUID | None = None
    ) -> list[Job]:
        """Jobs, newest first; `after` is the last id of the page before."""
        raise NotImplementedError

    def failures(
        self,
        *,
        pipeline: str | None = None,
        conflict_key: str | None = None,
        limit: int = 50,
        after: UUID | None = None,
    ) -> list[Failure]:
        """Failures, newest job first; `after` is the last id of the page before."""
        raise NotImplementedError

    def cancel(self, id: UUID) -> Outcome:
        """Cancel a job: CANCELLED, REQUESTED (owned: at its next heartbeat), FINISHED, FAILED or UNKNOWN."""
        raise NotImplementedError

    def requeue(self, id: UUID) -> Accepted:
        """Start a failed job's subject anew; raises SubjectBusy, or Refusal (not_found, payload_erased)."""
        raise NotImplementedError

    def purge(self, id: UUID) -> bool:
        """Remove the record of a failure."""
        raise NotImplementedError

    def discard(self, id: UUID) -> int:
        """Have everything removed that a job wrote (an export nobody needs); a running one is cancelled first."""
        raise NotImplementedError

    def pause(self, pipeline: str = "*", *, hours: float = 24) -> Pause:
        """Stop claims of a pipeline, or of all, with an end of at most 7 days; raises Refusal."""
        raise NotImplementedError

    def resume(self, pipeline: str = "*") -> bool:
        """End a pause; its length is added to the bounds of the jobs it held."""
        raise NotImplementedError

    def pauses(self) -> list[Pause]:
        """The pauses that stand."""
        raise NotImplementedError

    def set_schedule(self, key: str, pipeline: str, subject: dict[str, Any], cadence: Cadence) -> Schedule:
        """Make or change a schedule of a partial subject, which its pipeline's `pin` completes at each run."""
        raise NotImplementedError

    def get_schedule(self, key: str) -> Schedule | None:
        """A schedule."""
        raise NotImplementedError

    def delete_schedule(self, key: str) -> bool:
        """Remove a schedule; its active job goes on."""
        raise NotImplementedError

    def schedules(self) -> list[Schedule]:
        """All schedules, by key."""
        raise NotImplementedError

    def health(self) -> Health:
        """Whether every scheduled function has finished lately and no job is past its bound."""
        raise NotImplementedError

    def restored(self, above: int) -> int:
        """After a restore: lift the fences above the highest one found outside; the next fence."""
        raise NotImplementedError
