"""The words of the engine: what a pipeline declares, what a step returns and raises, what a caller gets to see."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Literal, Protocol
from uuid import UUID

from pydantic import BaseModel

from chalicelib import codes

from .cadence import Cadence

REQUESTED = "REQUESTED"
"""The state every job begins in, and goes back to when its worker is lost."""

ATTEMPTS = 3
"""How often a job may leave REQUESTED; the CHECK `attempts_are_capped` says the same."""

Status = Literal["queued", "running", "succeeded", "failed"]


# What a pipeline declares


@dataclass(frozen=True)
class Step:
    """A state of a job and the function that works in it, as "package.module:function".

    Raise `shape` when the form of the step's checkpoints changes: older ones are dropped then.
    """

    state: str
    run: str
    shape: int = 1


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """An ordered list of steps with a name; light to import, for the steps are strings."""

    name: str
    subject: type[BaseModel]
    steps: Sequence[Step]
    done: str
    conflict_key: str | None = None  # a format string over {subject}: at most one unfinished job holds it
    order_key: str | None = None  # likewise: its jobs run one at a time, in the order in which they were accepted
    request: type[BaseModel] | None = None  # the payload's model; the payload is erased when the job ends
    queue: Literal["work", "fetch"] = "work"
    queue_budget: timedelta | None = None  # None: the settings'
    run_budget: timedelta | None = None
    coalesces: bool = False  # a second caller may have the first one's job
    stays_true: Sequence[str] = ()  # bools of the subject that a follow-up has once one of those it stands for had them
    pin: str | None = None  # "module:function", (tx, partial subject) -> full subject, or Refusal
    at_requeue: str | None = None  # "module:function", (tx, subject): raises Refusal where it may not be run again now
    progress_restores_attempts: bool = False  # a committed checkpoint gives the attempts back
    part_of: str | None = None  # the pipeline that starts it, and starts it anew: alone nobody would take its result

    def __post_init__(self) -> None:
        states = [REQUESTED, *(step.state for step in self.steps), self.done]
        if len(states) < 3 or len(set(states)) < len(states):
            raise ValueError(f"pipeline {self.name}: it needs a step, and each state a name of its own")
        if self.coalesces and (self.request or not self.conflict_key):
            raise ValueError(f"pipeline {self.name}: coalescing needs a conflict key and no payload")
        if self.coalesces and self.order_key:
            raise ValueError(f"pipeline {self.name}: what waits for its turn has no follow-up")
        bools = {name for name, field in self.subject.model_fields.items() if field.annotation is bool}
        if not bools.issuperset(self.stays_true) or (self.stays_true and not self.coalesces):
            raise ValueError(f"pipeline {self.name}: what stays true is a bool of its subject, and needs coalescing")

    def step(self, state: str) -> Step:
        """The step that works in this state."""
        return next(step for step in self.steps if step.state == state)

    def after(self, state: str) -> str | None:
        """The state that follows, or None after the last step."""
        states = [step.state for step in self.steps]
        following = states.index(state) + 1
        return states[following] if following < len(states) else None


# What a step returns


class Advance:
    """The step is done: these ledger rows are kept, this is handed on (names, sizes, checksums only)."""

    def __init__(self, keep: Iterable[int] = (), **result: Any):
        self.keep = list(keep)
        self.result = result


@dataclass(frozen=True)
class Wait:
    """Come back in so many seconds; the lease is given back and no attempt is spent."""

    seconds: float
    waiting_for: str | None = None


@dataclass(frozen=True)
class Finished:
    """The step has called `Leased.finish` in a transaction of its own."""


# What a step raises


class Failing(Exception):
    """A step's end that isn't success: a code of the registry and whitelisted details."""

    def __init__(self, code: str, **details: Any):
        if code not in codes.FAILURES or not details.keys() <= codes.DETAILS:
            raise ValueError("a failure takes a code of codes.FAILURES and details of codes.DETAILS")
        # What can't be stored is seen here, inside the step: where the job's end is written it would leave it without.
        text = json.dumps(details, ensure_ascii=False, allow_nan=False)
        if "\\u0000" in text or not text.encode():  # half a surrogate pair can't be encoded
            raise ValueError("a failure's details are JSON that PostgreSQL keeps")
        super().__init__(code)
        self.code = code
        self.details = details


class PermanentFailure(Failing):
    """Trying again wouldn't help: the job fails now."""


class TransientFailure(Failing):
    """Trying again may help: the job backs off, or fails with this code when its attempts are spent."""


class Outage(Failing):
    """Something outside is away: the job waits with growing pauses, of at least ``seconds``, and spends no attempt."""


class LeaseLost(Exception):
    """The job belongs to somebody else now: stop before the next side effect, and say nothing more."""


class TooLate(Exception):
    """This invocation ends too soon for what comes next: another one does it, and no attempt is spent."""


class Cancelled(Exception):
    """An operator or the owner cancelled the job."""


# What a caller may be told


class Refusal(Exception):
    """What was asked for can't be done: a code of the registry, the field and what would help."""

    def __init__(self, code: str, field: str | None = None, detail: str = ""):
        super().__init__(detail or code)
        self.code = code
        self.field = field
        self.detail = detail


class SubjectBusy(Refusal):
    """Another job works on the same subject."""

    def __init__(self, active: UUID, pipeline: str):
        super().__init__("subject_busy", None, f"Job {active} ({pipeline}) is at work on it.")
        self.active = active
        self.pipeline = pipeline


class ClockDisagrees(Exception):
    """The event's time and the database's clock differ by over five minutes: nothing was changed."""


# What there is to see


@dataclass(frozen=True)
class Progress:
    """How far a job is; the total is None where it isn't known."""

    records: int = 0
    bytes: int = 0
    total: int | None = None


@dataclass(frozen=True)
class Waiting:
    """What a job waits for, since when, and when it looks again (None while it looks)."""

    code: str
    since: datetime
    until: datetime | None


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, unfinished or succeeded."""

    id: UUID
    pipeline: str
    queue: str
    conflict_key: str | None
    subject: dict[str, Any]
    state: str
    status: Status
    attempts: int
    progress: Progress
    version: int | None
    result: dict[str, Any]
    accepted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    run_at: datetime | None
    locked_until: datetime | None
    deadline_at: datetime | None
    claim_id: int | None
    waiting_for: Waiting | None
    cancel_requested: bool
    follow_up: bool
    schedule: str | None


@dataclass(frozen=True, kw_only=True)
class Failure:
    """The permanent record of a job that failed; it holds nothing private."""

    id: UUID
    pipeline: str
    conflict_key: str | None
    subject: dict[str, Any]
    state: str
    code: str
    details: dict[str, Any]
    attempts: int
    accepted_at: datetime
    started_at: datetime | None
    failed_at: datetime
    schedule: str | None
    requeued_as: UUID | None
    status: Status = "failed"


@dataclass(frozen=True, kw_only=True)
class Idempotency:
    """By what a request is known again: keyed hashes of who asks, of the key and of what is asked; where, in plain.

    The same for seven days is the same request; another body under the same key is refused.
    """

    principal: bytes
    route: str
    key: bytes
    body: bytes


@dataclass(frozen=True)
class Accepted:
    """The job that does what was asked for; `created` is False when an active one does it already."""

    job: Job
    created: bool


class Outcome(StrEnum):
    """What became of an ask for work, or of a wish to cancel."""

    NOTHING = "nothing"  # nothing was due
    TOO_LATE = "too_late"  # too little time left to claim anything
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    WAITING = "waiting"
    RETRYING = "retrying"
    HANDED_OVER = "handed_over"
    LOST = "lost"  # somebody else owns the job now
    REQUESTED = "requested"  # the owner is told at its next heartbeat
    UNKNOWN = "unknown"  # there is no such job


@dataclass(frozen=True)
class Worked:
    """One ask for work: the job, if there was one, and what became of it."""

    job: UUID | None
    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """Something a job wrote outside, to be removed."""

    id: int
    job_id: UUID
    claim_id: int
    kind: str
    locator: dict[str, Any]
    tries: int


@dataclass(frozen=True, kw_only=True)
class Pause:
    """Claims of a pipeline, or of all ("*"), are stopped until then."""

    pipeline: str
    since: datetime
    until: datetime


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """What is started regularly: a partial subject, its cadence, and where it stands."""

    key: str
    pipeline: str
    subject: dict[str, Any]
    cadence: Cadence
    next_due_at: datetime
    last_due_at: datetime | None
    last_job: UUID | None
    last_refusal: str | None


@dataclass(frozen=True)
class Run:
    """When a scheduled function last finished, and what it counted."""

    function: str
    finished_at: datetime | None
    counts: dict[str, Any]


@dataclass(frozen=True)
class Health:
    """Whether everything that must run does; `reasons` says what doesn't."""

    ok: bool
    reasons: list[str]
    runs: dict[str, Run]
    past_bound: int
    oldest_snapshot: float  # seconds for which a transaction has been open that keeps dead rows from being removed
    pauses: list[Pause]
    checked_at: datetime


class Queues(Protocol):
    """What carries wake-ups."""

    def send(self, queue: str, messages: Sequence[tuple[UUID, int]], *, inline: bool = False) -> set[UUID]:
        """Send (job, delay in seconds) pairs; the ids that were acknowledged."""


Removers = Mapping[str, str]
"""Kind of a ledger row to the "module:function" that removes it."""


@dataclass
class Counts:
    """What a scheduled function did."""

    by: dict[str, int] = field(default_factory=dict)

    def add(self, what: str, number: int = 1) -> None:
        """Count it."""
        self.by[what] = self.by.get(what, 0) + number
