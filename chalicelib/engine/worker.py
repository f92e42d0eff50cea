"""What a worker does with one wake-up: claim, run steps until the job is handed on, say what became of it."""

from collections.abc import Callable, Mapping
from datetime import timedelta
from importlib import import_module
from typing import Any
from uuid import UUID, uuid4

import psycopg
from psycopg.types.json import Jsonb

from chalicelib import telemetry
from chalicelib.db import DatabaseAway, Row

from .lease import Leased, Surroundings, sql
from .model import (
    ATTEMPTS,
    Advance,
    Cancelled,
    Finished,
    LeaseLost,
    Outage,
    Outcome,
    PermanentFailure,
    Pipeline,
    TooLate,
    TransientFailure,
    Wait,
    Worked,
)


def claim(
    around: Surroundings,
    pipelines: Mapping[str, Pipeline],
    queue: str,
    *,
    job: UUID | None,
    ask: UUID,
    lease: timedelta,
    until: Callable[[], float],
) -> Leased[Any] | None:
    """Claim the job if it is due, else the oldest due one of the queue."""
    asked_at = around.monotonic()
    wanted = {
        "queue": queue,
        "ask": ask,
        "lease": lease,
        "pipelines": list(pipelines),
        "first_steps": Jsonb({name: pipeline.steps[0].state for name, pipeline in pipelines.items()}),
    }
    row = None
    if job is not None:
        row = around.insist(lambda: around.db.one(sql.claim_job, job_id=job, **wanted))
    if row is None:
        row = around.insist(lambda: _claim_next(around, wanted))
    return Leased(around, pipelines[row["pipeline"]], row, until, asked_at) if row else None


def _claim_next(around: Surroundings, wanted: dict[str, Any]) -> Row | None:
    try:
        return around.db.one(sql.claim_next_job, **wanted)
    except psycopg.errors.UniqueViolation:
        # job_lease_owner: this one was about to take another job when an earlier try of the same ask has committed.
        return around.db.one(sql.claim_next_job, **wanted)


def work(
    around: Surroundings,
    pipelines: Mapping[str, Pipeline],
    queue: str,
    *,
    job: UUID | None,
    until: Callable[[], float],
) -> tuple[Worked, UUID | None]:
    """Claim one job and run its steps; the second value is whom a wake-up is owed now."""
    left = until()
    if not left >= minimum(around):  # "not >=": what isn't a number is too little, too
        return Worked(None, Outcome.TOO_LATE), None
    lease = timedelta(seconds=min(around.settings.lease, left))
    # First a statement whose loss means nothing: a lost ask would have to be repeated until its time-out has passed.
    around.clock()
    # A new id for each ask, never an invocation's: Lambda repeats an asynchronous event under the same one.
    leased = claim(around, pipelines, queue, job=job, ask=uuid4(), lease=lease, until=until)
    if leased is None:
        return Worked(None, Outcome.NOTHING), None
    telemetry.log("claimed", job=leased.id, claim=leased.claim_id, pipeline=leased.pipeline, state=leased.state)
    outcome = _run(leased, pipelines[leased.pipeline], minimum(around))
    telemetry.log("worked", job=leased.id, pipeline=leased.pipeline, state=leased.state, outcome=outcome)
    return Worked(leased.id, outcome), leased.owed


def minimum(around: Surroundings) -> float:
    """The least time worth a claim: that of two heartbeats."""
    return around.settings.heartbeat * 2


def load(name: str) -> Callable[..., Any]:
    """The function that "package.module:function" names."""
    module, _, function = name.partition(":")
    found: Callable[..., Any] = getattr(import_module(module), function)
    return found


def _run(leased: Leased[Any], pipeline: Pipeline, least: float) -> Outcome:
    try:
        while True:
            outcome = _step(leased, pipeline, least)
            if outcome is not None:
                return outcome
    except LeaseLost:
        return Outcome.LOST
    except Cancelled:
        try:
            leased.fail("cancelled", {})
        except LeaseLost:
            return Outcome.LOST
        return Outcome.CANCELLED


def _step(leased: Leased[Any], pipeline: Pipeline, least: float) -> Outcome | None:
    try:
        return _conclude(leased, pipeline, load(pipeline.step(leased.state).run)(leased), least)
    except (LeaseLost, Cancelled, DatabaseAway):
        raise
    except TooLate:
        leased.wait(max(1.0, leased.seconds_left()), None)  # until then this invocation would have it at once again
        return Outcome.WAITING
    except PermanentFailure as failure:
        leased.fail(failure.code, failure.details)
        return Outcome.FAILED
    except Outage as outage:
        leased.sit_out(outage.code, outage.details)
        return Outcome.WAITING
    except TransientFailure as failure:
        return _again(leased, failure.code, failure.details)
    except Exception as error:  # noqa: BLE001 - whatever a step raises must not leave its job without an end
        telemetry.failure("step_failed", error, job=leased.id, pipeline=leased.pipeline, step=leased.state)
        details = {"exception": type(error).__name__}
        if isinstance(error, psycopg.Error) and error.sqlstate:
            details["sqlstate"] = error.sqlstate
        return _again(leased, "internal_error", details)


def _conclude(leased: Leased[Any], pipeline: Pipeline, returned: object, least: float) -> Outcome | None:
    match returned:
        case Wait(seconds, waiting_for):
            leased.wait(seconds, waiting_for)
            return Outcome.WAITING
        case Finished() if leased.finished:
            return Outcome.FINISHED
        case Advance():
            after = pipeline.after(leased.state)
            if after is None:
                leased.complete(returned.keep, returned.result)
                return Outcome.FINISHED
            hand_over = leased.seconds_left() < least
            leased.advance(after, returned.keep, returned.result, hand_over=hand_over)
            return Outcome.HANDED_OVER if hand_over else None
    raise TypeError("a step returns Advance, Wait, or Finished once it has called finish")


def _again(leased: Leased[Any], code: str, details: dict[str, Any]) -> Outcome:
    if leased.attempts >= ATTEMPTS:
        leased.fail(code, details)
        return Outcome.FAILED
    leased.retry(code, details)
    return Outcome.RETRYING
