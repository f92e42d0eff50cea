"""A claim on a job: what a step gets, and the only way a worker writes.

Every write carries the claim and checks it in the same statement; no row changed means LeaseLost. Where the reply to a
write was lost, the write is repeated, and read back by claim before anyone concludes LeaseLost (docs/invariants.md, 5).
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, cast
from uuid import UUID

from psycopg.types.json import Jsonb
from pydantic import BaseModel

from chalicelib.db import Database, DatabaseAway, Row, Sql, Transaction, statements
from chalicelib.settings import Settings

from .model import Cancelled, LeaseLost, Pipeline, TooLate

sql = statements("chalicelib.engine")


@dataclass(frozen=True)
class Surroundings:
    """What a claim needs of its engine: database, settings, a worker's own stopwatch (durations, never instants)."""

    db: Database
    settings: Settings
    monotonic: Callable[[], float]
    sleep: Callable[[float], None]

    def clock(self) -> datetime:
        """The database's clock, the only one; asked twice, for a connection may have died while the function slept."""
        try:
            row = self.db.run(sql.read_clock)[0]
        except DatabaseAway:
            row = self.db.run(sql.read_clock)[0]
        return cast(datetime, row["now"])

    def insist(self, attempt: Callable[[], Row | None], arrived: Callable[[], Row | None] = lambda: None) -> Row | None:
        """Repeat a write without a reply until it gets one; no row counts once the first try's time-out has passed.

        A try whose reply was lost may still be at work on the server, at the longest until its statement time-out; an
        answer of no row that comes sooner is looked at again, unless `arrived` finds the effect of the lost one.
        """
        try:
            return attempt()
        except DatabaseAway:
            give_up = self.monotonic() + self.settings.statement_timeout
        while True:
            late = self.monotonic() >= give_up
            try:
                row = attempt() or arrived()
                if row or late:
                    return row
            except DatabaseAway:
                if late:
                    raise
            self.sleep(1)


class Leased[S: BaseModel]:
    """A job that is ours for a while."""

    def __init__(self, around: Surroundings, pipeline: Pipeline, row: Row, until: Callable[[], float], asked_at: float):
        self._around = around
        self._pipeline = pipeline
        self._until = until
        self._subject = row["subject"]
        self._request = row["request"]
        self._beaten_at = asked_at
        self._expires = asked_at + row["seconds"]
        self._progress: dict[str, int] = {}  # not yet reported
        self.id: UUID = row["id"]
        self.claim_id: int = row["claim_id"]
        self.pipeline: str = row["pipeline"]
        self.state: str = row["state"]
        self.attempts: int = row["attempts"]
        self.result: dict[str, Any] = row["result"]
        self.version: int | None = row["version"]
        self.outages: int = row["outages"]
        self.checkpoint: dict[str, Any] | None = self._fitting(row["checkpoint"])
        self.finished = False
        self.owed: UUID | None = None  # whom a wake-up is owed now: this job, or the one that follows it

    @cached_property
    def subject(self) -> S:
        """What the job is about."""
        return cast(S, self._pipeline.subject.model_validate(self._subject))

    @cached_property
    def request(self) -> BaseModel | None:
        """The payload, where the pipeline takes one."""
        return self._pipeline.request.model_validate(self._request) if self._pipeline.request else None

    def seconds_left(self) -> float:
        """Seconds left of this invocation."""
        return self._until()

    def heartbeat(self, *, force: bool = False, **progress: int) -> None:
        """Extend the lease and report records=, bytes=, total=; at most one write a heartbeat period, unless forced."""
        self._progress |= progress
        if force or self._around.monotonic() - self._beaten_at >= self._around.settings.heartbeat:
            self._extend(self._around.settings.lease)

    def require(self, seconds: float) -> None:
        """Make sure that the lease outlasts this; TooLate where the invocation doesn't, else LeaseLost."""
        if self._expires - self._around.monotonic() < seconds:
            if self._until() < seconds:
                raise TooLate
            self._extend(max(seconds + 1, self._around.settings.lease))
            if self._expires - self._around.monotonic() < seconds:
                raise LeaseLost(f"less than {seconds} s are left of the lease, for its deadline comes")

    def save(self, checkpoint: dict[str, Any], *, progress: bool = True) -> None:
        """Remember where this step is; without progress no attempt is given back, whatever the pipeline declares."""
        step = self._pipeline.step(self.state)
        row = self._write(
            sql.save_checkpoint,
            checkpoint=Jsonb({"step": step.state, "shape": step.shape, "value": checkpoint}),
            restores_attempts=progress and self._pipeline.progress_restores_attempts,
        )
        self.attempts = row["attempts"]
        self.checkpoint = checkpoint

    def note(self, kind: str, locator: dict[str, Any]) -> int:
        """Write into the ledger what is about to be created; the same again gives the same row."""
        return int(self._write(sql.note_in_ledger, kind=kind, locator=Jsonb(locator))["id"])

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A short transaction for a finish with other tables: lock the dataset's row first, then `hold`."""
        try:
            with self._around.db.transaction() as tx:
                yield tx
        except DatabaseAway:
            # The reply to COMMIT may be what was lost.
            if not (self.finished and self._around.insist(lambda: self._arrived("finished"))):
                self.finished = False
                raise
        except BaseException:
            self.finished = False  # rolled back
            raise

    def hold(self, tx: Sql) -> None:
        """Check the fence and keep the job from being taken away until the transaction ends, or LeaseLost."""
        if not tx.one(sql.hold_job, **self._claim):
            raise LeaseLost

    def finish(self, tx: Sql, *, keep: Iterable[int] = (), version: int | None = None, **result: Any) -> None:
        """Finish the job in the caller's transaction; the step returns Finished() then."""
        row = tx.one(sql.finish_job, **self._claim, **self._finishing(keep, version, result))
        if row is None:
            raise LeaseLost
        self.finished = True
        self.owed = row["follow_up"]

    # The runner's part

    def complete(self, keep: Iterable[int], result: dict[str, Any]) -> None:
        """Finish the job in a transaction of its own: the last step has returned Advance."""
        self._flush()
        row = self._write(sql.finish_job, "finished", **self._finishing(keep, None, result))
        self.owed = row.get("follow_up")

    def advance(self, state: str, keep: Iterable[int], result: dict[str, Any], *, hand_over: bool) -> None:
        """Go on to the next state; with hand_over another invocation does."""
        self._flush()
        at = self._around.monotonic()
        row = self._write(
            sql.advance_job,
            "handed_over" if hand_over else "advanced",
            state,
            left_state=self.state,
            next_state=state,
            keep=list(keep),
            result=Jsonb(result),
            hand_over=hand_over,
            lease=self._lease(self._around.settings.lease),
            wakeup_lost=self._wakeup_lost,
        )
        # It may be shorter than what was required before; where the reply was lost, nothing is known of it.
        self._expires = at + row.get("seconds", 0)
        self.owed = self.id if hand_over else None
        self.state = state
        self.result = self.result | result
        self.checkpoint = None
        self.outages = 0

    def wait(self, seconds: float, waiting_for: str | None) -> None:
        """Give the lease back for a while."""
        self._give_back(seconds, waiting_for, None)

    def sit_out(self, code: str, details: dict[str, Any]) -> None:
        """Give the lease back because something outside is away; the pauses grow, and are no shorter than it asked."""
        first, longest = self._around.settings.outage_pauses
        self._give_back(max(min(longest, first * 2 ** min(self.outages, 10)), details.get("seconds", 0)), code, details)

    def retry(self, code: str, details: dict[str, Any]) -> None:
        """Go back to REQUESTED; a caller with no attempt left fails the job instead."""
        self._write(
            sql.retry_job,
            "retried",
            code=code,
            details=Jsonb(details),
            backoff=backoff(self._around.settings),
            wakeup_lost=self._wakeup_lost,
        )
        self.owed = self.id

    def fail(self, code: str, details: dict[str, Any]) -> None:
        """End the job as a failure."""
        row = self._write(sql.fail_job, "failed", code=code, details=Jsonb(details), wakeup_lost=self._wakeup_lost)
        self.owed = row.get("follow_up")

    def _give_back(self, seconds: float, waiting_for: str | None, details: dict[str, Any] | None) -> None:
        self._flush()
        self._write(
            sql.wait_job,
            "waiting",
            pause=timedelta(seconds=seconds),
            waiting_for=waiting_for,
            outage=details is not None,
            details=None if details is None else Jsonb(details),
            wakeup_lost=self._wakeup_lost,
        )
        self.owed = self.id

    def _finishing(self, keep: Iterable[int], version: int | None, result: dict[str, Any]) -> dict[str, Any]:
        return {
            "done": self._pipeline.done,
            "keep": list(keep),
            "version": version,
            "result": Jsonb(result),
            "wakeup_lost": self._wakeup_lost,
        }

    def _fitting(self, checkpoint: dict[str, Any] | None) -> dict[str, Any] | None:
        tags = {step.state: step.shape for step in self._pipeline.steps if step.state == self.state}
        if checkpoint and tags.get(checkpoint["step"]) == checkpoint["shape"]:
            return cast(dict[str, Any], checkpoint["value"])
        return None

    def _flush(self) -> None:
        if self._progress:
            self._extend(self._around.settings.lease)

    def _extend(self, seconds: float) -> None:
        at = self._around.monotonic()
        progress: dict[str, Any] = {"records": None, "bytes": None, "total": None} | self._progress
        row = self._write(sql.extend_lease, lease=self._lease(seconds), **progress)
        self._beaten_at = at
        self._expires = at + row["seconds"]
        self._progress = {}
        if row["cancelled"]:
            raise Cancelled

    def _lease(self, seconds: float) -> timedelta:
        return timedelta(seconds=max(0.0, min(seconds, self._until())))

    def _write(self, statement: str, leaves: str | None = None, in_state: str | None = None, **params: Any) -> Row:
        """Write under the fence; `leaves` names the event by which a write that can't be repeated is read back."""
        row = self._around.insist(
            lambda: self._around.db.one(statement, **self._claim, **params),
            lambda: self._arrived(leaves, in_state) if leaves else None,
        )
        if row is None:
            owned = self._around.insist(lambda: self._around.db.one(sql.await_writers, **self._claim))
            if owned and owned["ours"] and owned["cancelled"]:
                raise Cancelled
            raise LeaseLost
        return row

    def _arrived(self, kind: str, state: str | None = None) -> Row | None:
        self._around.db.one(sql.await_writers, **self._claim)
        return self._around.db.one(sql.read_back, **self._claim, kind=kind, state=state)

    @property
    def _claim(self) -> dict[str, Any]:
        return {"job_id": self.id, "claim_id": self.claim_id}

    @property
    def _wakeup_lost(self) -> timedelta:
        return timedelta(seconds=self._around.settings.wakeup_lost)


def backoff(settings: Settings) -> list[timedelta]:
    """The pauses before the second and the third attempt."""
    return [timedelta(seconds=seconds) for seconds in settings.retry_backoff]
