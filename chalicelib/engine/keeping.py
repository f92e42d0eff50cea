"""The scheduled functions: recovery, catch-up, cleanup. Each takes one row a statement, in a loop bounded by time.

A row that can't be handled is counted, passed over for the rest of the run, and blocks nobody.
"""

import itertools
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.types.json import Jsonb
from pydantic import BaseModel

from chalicelib import telemetry
from chalicelib.db import DatabaseAway, Sql

from .cadence import Cadence
from .lease import Surroundings, backoff, sql
from .model import Accepted, ClockDisagrees, Counts, LedgerRow, Refusal, Removers
from .worker import load

Starter = Callable[[Sql, str, dict[str, Any], str], Accepted]
"""(transaction, pipeline, partial subject, schedule's key) -> the job."""

LARGEST_DISAGREEMENT = timedelta(minutes=5)

OF_THE_ROW = ("21", "22", "23", "P0")
"""Classes of SQLSTATEs that come of what a row holds (a number of rows, a value, a constraint), or of a trigger for it.

Nothing else says anything about the row: a deadlock, a time-out, a schema that isn't this code's. Such a row comes
again next minute, and once it is past its bound health tells.
"""


def check_clock(around: Surroundings, event_time: datetime | None) -> None:
    """Refuse to run when the event's time and the database's clock differ by over five minutes (invariant 10)."""
    now = around.clock()
    if event_time is not None and abs(now - event_time) > LARGEST_DISAGREEMENT:
        telemetry.log("clock_disagrees", event_time=event_time, database=now)
        raise ClockDisagrees


def time_left(around: Surroundings, share: float = 1) -> Callable[[], float]:
    """For how many seconds this run may take another row; 0 when it may not."""
    end = around.monotonic() + around.settings.recovery_seconds * share
    return lambda: max(0, end - around.monotonic())


def finish_run(around: Surroundings, function: str, counts: Counts) -> None:
    """Remember that a scheduled function has finished: what `/health` looks at."""
    around.db.run(sql.finish_run, function=function, counts=Jsonb(counts.by))


def recover(around: Surroundings, whole_of: Callable[[str], str], counts: Counts) -> None:
    """Handle every job whose act-by has passed, and end the pauses that are over, which may take long, or fail."""
    first, more = time_left(around, share=0.5), time_left(around, share=0.7)
    passed: list[UUID] = []
    _recover_overdue(around, first, passed, counts)
    over = _pauses_over(around, whole_of)
    for before, pipelines in enumerate(itertools.takewhile(lambda _: more(), over)):
        # What is left, shared with those that come after; whoever waits for one of these jobs would give up after 25 s.
        longest = min(20, max(10, int(more() / (len(over) - before))))
        try:
            with around.db.transaction() as tx:
                tx.run("set local lock_timeout = '2s'")  # a job that somebody has locked keeps all others waiting
                tx.run(f"set local statement_timeout = '{longest}s'")
                if ended := tx.run(sql.end_pause, pipelines=pipelines, early=False):
                    counts.add("pauses_ended", len(ended))
        except psycopg.Error as error:  # too many jobs for one statement, or one of them locked: others go on meanwhile
            telemetry.failure("pause_not_ended", error, pipelines=pipelines, sqlstate=error.sqlstate)
            counts.add("pauses_not_ended")
    _recover_overdue(around, more, passed, counts)  # whom a pause has held, and who was left for the time of the pauses


def _pauses_over(around: Surroundings, whole_of: Callable[[str], str]) -> list[list[str]]:
    """The pauses that are over, each beside its parts', once all of them are.

    They end together: who waits for a part that is paused for longer would spend his run budget on that.
    """
    if not (pauses := around.db.run(sql.list_pauses)):
        return []
    now, together = around.clock(), defaultdict(list)
    for pause in pauses:
        together[whole_of(pause["pipeline"])].append(pause)
    return [
        [pause["pipeline"] for pause in of] for of in together.values() if all(pause["until"] <= now for pause in of)
    ]


def _recover_overdue(around: Surroundings, more: Callable[[], float], passed: list[UUID], counts: Counts) -> None:
    while more() and (overdue := around.db.run(sql.list_overdue_jobs, passed=passed)):
        for row in itertools.takewhile(lambda _: more(), overdue):
            passed.append(row["id"])
            counts.add(_recover_one(around, row["id"]))


def _recover_one(around: Surroundings, job: UUID) -> str:
    wakeup_lost = timedelta(seconds=around.settings.wakeup_lost)
    try:
        row = around.db.one(sql.recover_job, job_id=job, backoff=backoff(around.settings), wakeup_lost=wakeup_lost)
        return str(row["kind"]) if row else "in_other_hands"
    except psycopg.Error as error:
        telemetry.failure("recovery_failed", error, job=job, sqlstate=error.sqlstate)
        if not (error.sqlstate or "").startswith(OF_THE_ROW):
            return "passed_over"
    try:
        return "unrecoverable" if around.db.one(sql.fail_unrecoverable_job, job_id=job) else "in_other_hands"
    except psycopg.Error as error:
        telemetry.failure("recovery_failed", error, job=job, sqlstate=error.sqlstate)
        return "passed_over"


def catch_up(around: Surroundings, start: Starter, counts: Counts) -> None:
    """Start one job for each schedule that is due, as long as the cap leaves room; a paused pipeline's stay due."""
    more = time_left(around)
    passed: list[str] = []
    while more():
        before = len(passed)
        try:
            with around.db.transaction() as tx:
                if not _start_one(around, tx, passed, start, counts):
                    return
        except DatabaseAway:
            raise
        except Exception as error:  # one broken schedule must not stop the others
            if len(passed) == before:  # no schedule's fault, and it would come again at once
                raise
            telemetry.failure("catch_up_failed", error, schedule=passed[-1:])
            counts.add("passed_over")


def _start_one(around: Surroundings, tx: Sql, passed: list[str], start: Starter, counts: Counts) -> bool:
    # First the lock, then the count: in one statement the count's snapshot would be older than the lock.
    if not tx.run(sql.lock_catch_up):
        counts.add("in_other_hands")
        return False
    # The pauses once for both: were one to end between the two, what it held would go uncounted, and more start.
    paused = [pause["pipeline"] for pause in tx.run(sql.list_pauses)]
    if tx.run(sql.count_scheduled_jobs, paused=paused)[0]["active"] >= around.settings.catch_up_cap:
        counts.add("cap_reached")
        return False
    due = tx.one(sql.pick_due_schedule, passed=passed, paused=paused)
    if due is None:
        return False
    passed.append(due["key"])
    job, refusal = None, None
    try:
        accepted = start(tx, due["pipeline"], due["subject"], due["key"])
        job = accepted.job.id if accepted.created else None
        counts.add("started" if accepted.created else "busy")
    except Refusal as error:  # a busy subject, or one that is no longer there: the slot is used all the same
        refusal = error.code
        counts.add("busy" if refusal == "subject_busy" else "refused")
    # From the scheduled time into the future, so that a window missed five times is made up for once.
    next_due_at = Cadence(**due["cadence"]).next_after(max(due["next_due_at"], due["now"]))
    tx.run(sql.move_schedule, key=due["key"], next_due_at=next_due_at, job_id=job, refusal=refusal)
    return True


def pin(pipeline_pin: str | None, model: type[BaseModel], tx: Sql, wanted: dict[str, Any]) -> BaseModel:
    """The full subject of a partial one: completed by the pipeline's pin, or taken as it is."""
    if pipeline_pin is None:
        return model.model_validate(wanted)
    pinned: BaseModel = load(pipeline_pin)(tx, wanted)
    return pinned


def clean_up(around: Surroundings, removers: Removers, counts: Counts) -> None:
    """Remove garbage, twice each; then prune by retention."""
    more = time_left(around)
    while more() and (row := around.db.one(sql.take_garbage)):
        removed_before = row.pop("removed_at") is not None
        garbage = LedgerRow(**row)
        try:
            load(removers[garbage.kind])(garbage)
        except DatabaseAway:
            raise
        except Exception as error:  # noqa: BLE001 - whatever is in the way, it is tried again later
            telemetry.failure("removal_failed", error, kind=garbage.kind, tries=garbage.tries)
            around.db.run(sql.back_off_garbage, id=garbage.id)
            counts.add("backed_off")
            continue
        around.db.run(sql.forget_garbage if removed_before else sql.mark_removed, id=garbage.id)
        counts.add("forgotten" if removed_before else "removed")
    retention = timedelta(days=around.settings.retention_days)
    for prune, what in ((sql.prune_events, "events"), (sql.prune_jobs, "jobs"), (sql.prune_keys, "keys")):
        while more() and (pruned := around.db.run(prune, retention=retention)):
            counts.add(f"pruned_{what}", len(pruned))
