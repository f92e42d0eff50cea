"""The engine's acts, one method each; what is longer than a page stands in lease.py, worker.py and keeping.py."""

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb
from pydantic import BaseModel, ValidationError

from chalicelib import telemetry
from chalicelib.db import Database, Row, Sql
from chalicelib.settings import Settings

from . import keeping, rows, worker
from .cadence import Cadence
from .lease import Leased, Surroundings, sql
from .model import (
    Accepted,
    Counts,
    Failure,
    Health,
    Idempotency,
    Job,
    Outcome,
    Pause,
    Pipeline,
    Queues,
    Refusal,
    Removers,
    Run,
    Schedule,
    SubjectBusy,
    Worked,
)
from .refusals import refusing

LONGEST_PAUSE_HOURS = 7 * 24

KEY_LASTS = timedelta(days=7)
"""How long the same Idempotency-Key is the same request."""


class Engine:
    """Accepts jobs, has them worked on, and sees to it that each one ends."""

    def __init__(
        self,
        db: Database,
        pipelines: Mapping[str, Pipeline],
        settings: Settings,
        queues: Queues,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.db = db
        self.pipelines = pipelines
        self.settings = settings
        self.queues = queues
        self._around = Surroundings(db, settings, monotonic, sleep)

    # Accepting

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
        accepted = self._accept(tx or self.db, self.pipelines[pipeline], subject, request, schedule)
        if tx is None and accepted.created:
            self.relay(inline_job=accepted.job.id)
        return accepted

    def _accept(
        self,
        db: Sql,
        pipeline: Pipeline,
        subject: BaseModel,
        request: BaseModel | None = None,
        schedule: str | None = None,
        *,
        coalesce: bool = True,
    ) -> Accepted:
        key = pipeline.conflict_key.format(subject=subject) if pipeline.conflict_key else None
        order_key = pipeline.order_key.format(subject=subject) if pipeline.order_key else None
        wanted = {"pipeline": pipeline.name, "conflict_key": key, "subject": Jsonb(subject.model_dump(mode="json"))}
        settings = self.settings
        while True:
            row = db.one(
                sql.accept_job,
                **wanted,
                order_key=order_key,
                queue=pipeline.queue,
                request=Jsonb(request.model_dump(mode="json")) if request else None,
                schedule=schedule,
                queue_budget=pipeline.queue_budget or timedelta(seconds=settings.queue_budget),
                run_budget=pipeline.run_budget or timedelta(seconds=settings.run_budget),
                wakeup_lost=timedelta(seconds=settings.wakeup_lost),
            )
            if row:
                return Accepted(rows.job(row), created=True)
            if coalesce and pipeline.coalesces:
                row = db.one(sql.mark_follow_up, **wanted, stays_true=list(pipeline.stays_true))
                if row:
                    return Accepted(rows.job(row), created=False)
            active = db.one(sql.find_active_job, conflict_key=key)
            if active and not (coalesce and pipeline.coalesces and active["pipeline"] == pipeline.name):
                raise SubjectBusy(active["id"], active["pipeline"])
            # The active job has ended between the statements: the place is free, or somebody else has it by now.

    def once(self, key: Idempotency | None, accept: Callable[[Sql], Job]) -> Job | Failure:
        """The job that `accept` gives in its transaction, or gave when the same was asked under the same key before.

        Raises Refusal where something else was asked under that key, and what `accept` raises; then nothing is kept.
        """
        with self.db.transaction() as tx:
            known = self._known(tx, key) if key else None
            job = known or accept(tx)
            if key and not known:
                tx.run(sql.settle_key, job_id=job.id, principal=key.principal, route=key.route, key=key.key)
        self.relay(inline_job=job.id)
        return job

    def leave(self, tx: Sql, thing: UUID, kind: str, locator: dict[str, Any], lasts: timedelta) -> None:
        """Note a thing that is about to be made before there is a job for it: cleanup removes it after that time."""
        tx.run(sql.leave_in_ledger, thing=thing, kind=kind, locator=Jsonb(locator), lasts=lasts)

    def take_over(self, tx: Sql, thing: UUID, job: UUID) -> bool:
        """Give a thing that was left to the job that this transaction accepts; its end makes it garbage."""
        return bool(tx.run(sql.take_over, thing=thing, job_id=job))

    def _known(self, tx: Sql, key: Idempotency) -> Job | Failure | None:
        taken = tx.run(sql.take_key, **asdict(key), lasts=KEY_LASTS)[0]
        if taken["job_id"] is None:
            return None
        if taken["body"] != key.body:
            raise Refusal("idempotency_mismatch", "Idempotency-Key")
        if row := tx.one(sql.find_job, job_id=taken["job_id"]):
            return rows.job(row)
        # The job's row is kept at least as long as a key; its failure until it is purged, and then by the key itself.
        failed = tx.one(sql.find_failure, job_id=taken["job_id"])
        failed = failed or tx.one(sql.find_purged_failure, job_id=taken["job_id"])
        return rows.failure(failed) if failed else None  # purged by a release that kept no answers

    def relay(self, *, inline_job: UUID | None = None) -> int:
        """Send the wake-ups that are owed; with a job only its own, best effort: nothing that fails here is told."""
        if inline_job is None:
            sent, complete = self._relay(None, lambda: True)
            if complete:
                keeping.finish_run(self._around, "relay", Counts({"sent": sent}))
            return sent
        try:
            return self._relay(inline_job, lambda: True)[0]
        except Exception as error:  # noqa: BLE001 - the wake-up stays owed, and the next run sends it
            telemetry.failure("inline_relay_failed", error, job=inline_job)
            return 0

    def _relay(self, job: UUID | None, more: Callable[[], float]) -> tuple[int, bool]:
        """How many were sent, and whether everything that is owed now was."""
        sent = 0
        while more():
            owed = self.db.run(sql.take_owed) if job is None else self.db.run(sql.take_wake_up, job_id=job)
            if not owed:
                return sent, True
            acknowledged: set[UUID] = set()
            for queue in sorted({row["queue"] for row in owed}):
                messages = [(row["job_id"], row["delay"]) for row in owed if row["queue"] == queue]
                try:
                    acknowledged |= self.queues.send(queue, messages, inline=job is not None)
                except Exception as error:  # noqa: BLE001 - whatever the transport raises, the wake-up stays owed
                    telemetry.failure("queue_away", error, queue=queue)
            sent += len(acknowledged)
            unsent = [row for row in owed if row["job_id"] not in acknowledged]
            self._settle(sql.delete_sent, [row for row in owed if row["job_id"] in acknowledged])
            if unsent:
                self._settle(sql.give_back_owed, unsent)
                return sent, False
            if job is not None:
                return sent, True
        return sent, False

    def _settle(self, statement: str, owed: list[Row]) -> None:
        self.db.run(statement, jobs=[row["job_id"] for row in owed], numbers=[row["number"] for row in owed])

    # Working

    def claim(
        self,
        queue: str,
        *,
        job: UUID | None,
        ask: UUID,
        lease: timedelta,
        until: Callable[[], float] = lambda: float("inf"),
    ) -> Leased[Any] | None:
        """Claim the job if it is due, else the oldest due one of the queue; the same ask gets the same claim."""
        return worker.claim(self._around, self.pipelines, queue, job=job, ask=ask, lease=lease, until=until)

    def work(self, queue: str, *, job: UUID | None, until: Callable[[], float]) -> Worked:
        """Claim one job and run its steps; `until` gives the seconds left of this invocation."""
        worked, owed = worker.work(self._around, self.pipelines, queue, job=job, until=until)
        if owed:
            self.relay(inline_job=owed)
        return worked

    def work_on(self, queue: str, wake_ups: list[UUID], remaining: Callable[[], float]) -> list[Worked]:
        """Work on each wake-up; without any (the minute tick) on what is due until the time is nearly up."""
        if wake_ups:
            return [self.work(queue, job=job, until=remaining) for job in wake_ups]
        done = []
        while (worked := self.work(queue, job=None, until=remaining)).job:
            done.append(worked)
        return done

    # The scheduled functions

    def recover(self, *, event_time: datetime | None = None) -> dict[str, int]:
        """Expired leases, lost wake-ups, passed deadlines, ended pauses, owed messages."""
        keeping.check_clock(self._around, event_time)
        counts = Counts()
        relay_until = keeping.time_left(self._around)
        keeping.recover(self._around, self._whole_of, counts)
        if "pauses_not_ended" not in counts.by:  # nobody works on what such a pause holds: health must tell
            keeping.finish_run(self._around, "recovery", counts)
        sent, complete = self._relay(None, relay_until)
        if complete:
            keeping.finish_run(self._around, "relay", Counts({"sent": sent}))
        return {**counts.by, "sent": sent}

    def clean_up(self, *, event_time: datetime | None = None, removers: Removers) -> dict[str, int]:
        """Remove what the ledger calls garbage; prune by retention."""
        keeping.check_clock(self._around, event_time)
        counts = Counts()
        keeping.clean_up(self._around, removers, counts)
        keeping.finish_run(self._around, "clean_up", counts)
        return counts.by

    def catch_up(self, *, event_time: datetime | None = None) -> dict[str, int]:
        """Start the schedules that are due, as many as the cap leaves room for."""
        keeping.check_clock(self._around, event_time)
        counts = Counts()
        keeping.catch_up(self._around, self._start_scheduled, counts)
        # A run that met another one hasn't finished; and its mark would take that one's lock away from it.
        if "in_other_hands" not in counts.by:
            keeping.finish_run(self._around, "catch_up", counts)
        return counts.by

    def _start_scheduled(self, tx: Sql, name: str, wanted: dict[str, Any], schedule: str) -> Accepted:
        pipeline = self.pipelines[name]
        return self._accept(tx, pipeline, keeping.pin(pipeline.pin, pipeline.subject, tx, wanted), schedule=schedule)

    # Looking

    def job(self, id: UUID) -> Job | None:
        """A job that is unfinished or succeeded."""
        row = self.db.one(sql.find_job, job_id=id)
        return rows.job(row) if row else None

    def failure(self, id: UUID) -> Failure | None:
        """The record of a job that failed."""
        row = self.db.one(sql.find_failure, job_id=id)
        return rows.failure(row) if row else None

    def status(self, id: UUID) -> Job | Failure | None:
        """Whatever became of a job."""
        # The job first: one that fails in between is found as a failure.
        return self.job(id) or self.failure(id)

    def find(self, conflict_key: str, pipeline: str | None = None) -> Job | None:
        """The unfinished job that holds the conflict key."""
        row = self.db.one(sql.find_active_job, conflict_key=conflict_key)
        return rows.job(row) if row and pipeline in (None, row["pipeline"]) else None

    def history(self, id: UUID) -> list[Row]:
        """What happened to a job, oldest first: at, kind, state, claim_id, attempts, details."""
        return self.db.run(sql.list_events, job_id=id)

    def jobs(
        self, *, pipeline: str | None = None, status: str | None = None, limit: int = 50, after: UUID | None = None
    ) -> list[Job]:
        """Jobs, newest first; `after` is the last id of the page before."""
        found = self.db.run(sql.list_jobs, pipeline=pipeline, status=status, limit=limit, after=after)
        return [rows.job(row) for row in found]

    def failures(
        self,
        *,
        pipeline: str | None = None,
        conflict_key: str | None = None,
        code: str | None = None,
        limit: int = 50,
        after: UUID | None = None,
    ) -> list[Failure]:
        """Failures, newest job first; `after` is the last id of the page before."""
        wanted = {"pipeline": pipeline, "conflict_key": conflict_key, "code": code}
        found = self.db.run(sql.list_failures, **wanted, limit=limit, after=after)
        return [rows.failure(row) for row in found]

    # Operators

    def cancel(self, id: UUID, *, also: Callable[[Sql, Outcome], None] | None = None) -> Outcome:
        """Cancel a job: CANCELLED, REQUESTED (owned: at its next heartbeat), FINISHED, FAILED or UNKNOWN.

        What is cancelled or requested is so together with what `also` writes in the transaction that it is given.
        """
        lost = timedelta(seconds=self.settings.wakeup_lost)
        while True:
            with self.db.transaction() if also else nullcontext(self.db) as tx:
                row = tx.one(sql.cancel_job, job_id=id, wakeup_lost=lost)
                if row and also:
                    also(tx, Outcome(row["outcome"]))
            if row:
                if row["follow_up"]:
                    self.relay(inline_job=row["follow_up"])
                return Outcome(row["outcome"])
            found = self.status(id)
            if found is None:
                return Outcome.UNKNOWN
            if found.status in ("succeeded", "failed"):
                return Outcome.FINISHED if found.status == "succeeded" else Outcome.FAILED
            # It changed hands between the statements.

    def requeue(
        self, id: UUID, *, tx: Sql | None = None, also: Callable[[Sql, Job], None] = lambda tx, job: None
    ) -> Accepted:
        """Start a failed job's subject anew; raises SubjectBusy, or Refusal.

        It is refused as not_found, conflict or payload_erased, and with what its pipeline's `at_requeue` raises.
        It is accepted together with what `also` writes in the transaction that it is given. With `tx` in the caller's
        transaction, and nothing is sent yet.
        """
        if tx is None:
            with self.db.transaction() as own:
                accepted = self.requeue(id, tx=own, also=also)
            self.relay(inline_job=accepted.job.id)
            return accepted
        row = tx.one(sql.lock_failure, job_id=id)
        if row is None:
            raise Refusal("not_found", None, "There is no failure of that id.")
        pipeline = self.pipelines.get(row["pipeline"])
        if pipeline is None:
            raise Refusal("conflict", None, f"There is no pipeline {row['pipeline']} any more.")
        if pipeline.part_of is not None:
            raise Refusal("conflict", None, f"It is a part of a {pipeline.part_of}: requeue that one.")
        if pipeline.request is not None:
            raise Refusal("payload_erased", None, "The payload was erased when the job failed: send it anew.")
        try:
            subject = pipeline.subject.model_validate(row["subject"])
        except ValidationError:
            raise Refusal("conflict", None, "Its subject is of an older release: ask for it anew.") from None
        if pipeline.at_requeue:
            worker.load(pipeline.at_requeue)(tx, subject)
        accepted = self._accept(tx, pipeline, subject, coalesce=False)
        tx.run(sql.mark_requeued, job_id=id, requeued_as=accepted.job.id)
        also(tx, accepted.job)
        return accepted

    def purge(self, id: UUID) -> bool:
        """Remove the record of a failure."""
        return bool(self.db.run(sql.purge_failure, job_id=id))

    def discard(self, id: UUID) -> bool:
        """Have everything removed that a job wrote (an export nobody needs); False while it still has to stop."""
        if self.cancel(id) is Outcome.REQUESTED:
            return False
        self.db.run(sql.discard_job, job_id=id)
        return True

    def pause(self, pipeline: str = "*", *, hours: float = 24) -> Pause:
        """Stop claims of a pipeline and of its parts, or of all, with an end of at most 7 days; raises Refusal.

        A part alone isn't paused: whoever waits for it would spend his time on that, and fail.
        """
        if pipeline not in self.pausable():
            raise Refusal("bad_parameter", "pipeline", f"It takes one of {', '.join(self.pausable())}.")
        if not 0 < hours <= LONGEST_PAUSE_HOURS:
            raise Refusal("bad_parameter", "hours", f"It takes more than 0 and at most {LONGEST_PAUSE_HOURS} hours.")
        length = timedelta(hours=hours)
        with refusing(), self.db.transaction() as tx:
            made = {name: tx.run(sql.set_pause, pipeline=name, length=length)[0] for name in self._with_parts(pipeline)}
        return rows.pause(made[pipeline])

    def resume(self, pipeline: str = "*") -> bool:
        """End a pause, and its parts'; its length is added to the bounds of the jobs it held."""
        return bool(self.db.run(sql.end_pause, pipelines=self._with_parts(pipeline), early=True))

    def pausable(self) -> list[str]:
        """What can be paused: * for all, and each pipeline that isn't another's part."""
        return ["*", *sorted(name for name, pipeline in self.pipelines.items() if pipeline.part_of is None)]

    def _with_parts(self, whole: str) -> list[str]:
        """In the order in which their pauses are locked everywhere."""
        return sorted({whole, *(name for name in self.pipelines if self._whole_of(name) == whole)})

    def _whole_of(self, name: str) -> str:
        pipeline = self.pipelines.get(name)  # none of * and of what an older release knew
        return (pipeline and pipeline.part_of) or name

    def pauses(self) -> list[Pause]:
        """The pauses that stand."""
        return [rows.pause(row) for row in self.db.run(sql.list_pauses)]

    def restored(self, above: int) -> int:
        """After a restore: lift the fences above the highest one found outside; the next fence."""
        return int(self.db.run(sql.lift_claims, above=above)[0]["next"])

    def fence(self, tx: Sql) -> int:
        """A new fence for cleanup, which writes to the outside without a job."""
        return int(tx.run(sql.next_claim)[0]["fence"])

    # Schedules

    def set_schedule(self, key: str, pipeline: str, subject: dict[str, Any], cadence: Cadence) -> Schedule:
        """Make or change a schedule of a partial subject, which its pipeline's `pin` completes at each run."""
        now = self._around.clock()
        next_due_at = cadence.next_after(now)
        return rows.schedule(
            self.db.run(
                sql.set_schedule,
                key=key,
                pipeline=self.pipelines[pipeline].name,
                subject=Jsonb(subject),
                cadence=Jsonb(asdict(cadence)),
                next_due_at=next_due_at,
                believable=max(cadence.next_after(next_due_at), now + timedelta(days=1)),
            )[0]
        )

    def get_schedule(self, key: str) -> Schedule | None:
        """A schedule."""
        row = self.db.one(sql.find_schedule, key=key)
        return rows.schedule(row) if row else None

    def delete_schedule(self, key: str) -> bool:
        """Remove a schedule; its active job goes on."""
        return bool(self.db.run(sql.delete_schedule, key=key))

    def schedules(self) -> list[Schedule]:
        """All schedules, by key."""
        return [rows.schedule(row) for row in self.db.run(sql.list_schedules)]

    # Health

    def oldest_snapshot(self) -> float:
        """Seconds for which the oldest transaction has been open that keeps dead rows from being removed."""
        return float(self.db.run(sql.find_oldest_snapshot)[0]["seconds"])

    def health(self) -> Health:
        """Whether every scheduled function has finished lately and no job is past its bound."""
        runs = self.db.run(sql.list_runs)
        past_bound = int(self.db.run(sql.count_past_bound)[0]["number"])
        # Cleanup comes every quarter of an hour and nobody waits for it: shown, not judged.
        reasons = [
            f"{row['function']} has not finished for five minutes"
            for row in runs
            if row["overdue"] and row["function"] != "clean_up"
        ]
        if past_bound:
            reasons.append(f"{past_bound} unfinished job(s) past their bound")
        return Health(
            ok=not reasons,
            reasons=reasons,
            runs={row["function"]: Run(row["function"], row["finished_at"], row["counts"]) for row in runs},
            past_bound=past_bound,
            oldest_snapshot=self.oldest_snapshot(),
            pauses=self.pauses(),
            checked_at=runs[0]["now"],
        )
