"""Looks at the whole database after each step: what docs/invariants.md promises, and what must never change again.

It knows the engine by its tables alone. Each check names the invariant it holds. What a constraint refuses by itself
isn't looked at again: test_schema.py tries each. A twin is caught by each check (twins.py).
"""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import psycopg

LOOK = """
select engine.clock() as now
     , (select last_value from engine.claim_id) as fence
     , coalesce((select json_object_agg(id, j) from engine.job as j), '{}') as jobs
     , coalesce((select json_object_agg(job_id, f) from engine.failure as f), '{}') as failures
     , coalesce((select json_agg(e order by id) from engine.job_event as e), '[]') as events
     , coalesce((select json_object_agg(id, l) from engine.ledger as l), '{}') as ledger
     , coalesce((select json_object_agg(job_id, o) from engine.outbox as o), '{}') as outbox
     , coalesce((select json_object_agg(pipeline, p) from engine.pause as p), '{}') as pauses
     , coalesce((select json_object_agg(key, s) from engine.schedule as s), '{}') as schedules
"""

RESET = """
delete from engine.outbox;
delete from engine.job;
delete from engine.failure;
delete from engine.job_event;
delete from engine.ledger;
delete from engine.pause;
delete from engine.schedule;
delete from engine.line;
update engine.test_clock set at = '2026-03-02 09:00:00+00';
update engine.run set since = engine.clock(), finished_at = null, counts = '{}';
"""

PRIVATE = "what nobody may read"
"""Stands in every payload; it must be nowhere once the job has ended."""

GIVES_BACK = {"accepted", "waiting", "retried", "handed_over", "worker_lost", "wake_up_lost", "pause_ended", "released"}
"""After these events a wake-up is owed."""

STARTS_OVER = {"accepted", "retried", "worker_lost"}
"""After these the job is in REQUESTED, and the claim that follows spends an attempt."""

NOT_AFTER_A_CANCELLATION = {"claimed", "advanced", "waiting", "retried", "handed_over", "worker_lost"}

RETENTION = timedelta(days=30)

PRUNED = 2**62
"""Stands for the id of an event that retention has taken."""

PAYLOADS = {"post", "load"}
"""Pipelines whose jobs have a payload for as long as they are unfinished."""

RESTORES = {"crawl"}
"""Pipelines whose progress gives attempts back: theirs are counted by the deadline."""


STAYS_TRUE = ("insured",)
"""Fields of a subject: a follow-up that has them has them whatever is asked next."""


class Violation(AssertionError):
    """An invariant doesn't hold."""


@dataclass
class Snapshot:
    """Everything the engine knows, at one instant."""

    now: datetime
    fence: int
    jobs: dict[str, dict[str, Any]]
    failures: dict[str, dict[str, Any]]
    events: list[dict[str, Any]]
    ledger: dict[str, dict[str, Any]]
    outbox: dict[str, dict[str, Any]]
    pauses: dict[str, dict[str, Any]]
    schedules: dict[str, dict[str, Any]]

    def unfinished(self) -> dict[str, dict[str, Any]]:
        return {id: job for id, job in self.jobs.items() if job["finished_at"] is None}

    def rows(self) -> tuple[Any, ...]:
        """What a stale write must not change: every row, though not the clock."""
        return self.jobs, self.failures, self.events, self.ledger, self.outbox, self.pauses, self.schedules

    def held(self, job: dict[str, Any]) -> bool:
        """Whether a pause holds it."""
        return job["claim_id"] is None and ("*" in self.pauses or job["pipeline"] in self.pauses)


@dataclass
class Fate:
    """What is known of a job for ever."""

    pipeline: str
    requested: bool = True
    spent: int = 0
    claim: int = 0
    owner: int | None = None
    cancelled: bool = False
    gives_back: int = 0
    follows: int = 0
    ended: str | None = None
    finished_at: str | None = None
    version: int | None = None


def at(text: str) -> datetime:
    return datetime.fromisoformat(text)


def require(holds: object, says: str, *about: object) -> None:
    if not holds:
        raise Violation(" ".join([says, *map(str, about)]))


@dataclass
class Watch:
    """Remembers what was seen, and compares."""

    dsn: str
    cap: int
    seen: dict[str, Fate] = field(default_factory=dict)
    removed: dict[str, list[datetime]] = field(default_factory=dict)
    """Ledger row to when its remover ran."""
    acknowledged: dict[str, int] = field(default_factory=dict)
    """Job to the newest of its events when SQS acknowledged its latest message."""
    gone: set[str] = field(default_factory=set)
    """Failures an operator purged."""
    last: Snapshot | None = None
    _newest: int = 0
    _claims: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._connection = psycopg.connect(self.dsn, autocommit=True, row_factory=psycopg.rows.dict_row)

    def reset(self) -> None:
        """An empty database and an empty memory, for the next run."""
        self._connection.execute(RESET)
        for memory in (self.seen, self.removed, self.acknowledged, self.gone, self._claims):
            memory.clear()
        self.last = None
        self.look()

    def close(self) -> None:
        self._connection.close()

    def snapshot(self) -> Snapshot:
        return Snapshot(**self._connection.execute(LOOK).fetchone())

    def newest_event(self, job: object) -> int:
        row = self._connection.execute(
            "select coalesce(max(id), %s) as id from engine.job_event where job_id = %s", [PRUNED, job]
        ).fetchone()
        return row["id"]

    def look(self) -> Snapshot:
        """Every check, on what is there now and on what has changed since the last look."""
        now, before = self.snapshot(), self.last
        self._events(now)
        self._places(now)
        self._rows(now)
        self._wake_ups(now)
        self._ledger(now)
        if before:
            require(now.fence >= before.fence, "a fence went back (invariant 4)")
            self._changes(before, now)
        self.last = now
        return now

    def _events(self, now: Snapshot) -> None:
        for event in now.events:
            if event["id"] <= self._newest:
                continue
            self._newest = event["id"]
            id, kind = event["job_id"], event["kind"]
            if kind == "accepted":
                require(id not in self.seen, "a job was accepted twice:", id)
                found = now.jobs.get(id) or now.failures.get(id) or {"pipeline": "?"}
                self.seen[id] = Fate(found["pipeline"])
                if follows := event["details"].get("follows"):
                    self.seen[follows].follows += 1
            require(id in self.seen, "something happened to a job that nobody accepted:", event)
            fate = self.seen[id]
            require(fate.ended is None, "something happened to a job after its end:", event)
            require(not (fate.cancelled and kind in NOT_AFTER_A_CANCELLATION), "a cancelled job went on:", event)
            if kind == "claimed":
                claim = event["claim_id"]
                require(claim > fate.claim, "a newer owner has an older fence (invariant 4):", event)
                require(claim not in self._claims, "a fence was given twice (invariant 4):", event)
                self._claims.add(claim)
                fate.claim = fate.owner = claim
                fate.spent += fate.requested
                fate.requested = False
                if fate.pipeline not in RESTORES:
                    require(fate.spent <= 3, "a fourth attempt (invariant 6):", event)
                    require(event["attempts"] == fate.spent, "an attempt was not counted at its claim:", event)
            elif event["claim_id"] is not None:
                require(event["claim_id"] == fate.claim, "a stale owner left an event (invariant 3):", event)
            fate.requested |= kind in STARTS_OVER
            fate.cancelled |= kind == "cancel_requested"
            if kind in GIVES_BACK:
                fate.gives_back = event["id"]
                fate.owner = None
            if kind in ("finished", "failed"):
                fate.ended = kind

    def _places(self, now: Snapshot) -> None:
        """Each accepted job is in exactly one place, and its end is an end."""
        for id, fate in self.seen.items():
            job, failure = now.jobs.get(id), now.failures.get(id)
            require(not (job and failure), "a job is in two places:", id)
            if fate.ended is None:
                require(job and job["finished_at"] is None, "a job is gone without an end:", id, fate)
            elif fate.ended == "failed":
                require(failure or id in self.gone, "a failed job left no failure:", id)
            else:
                require(not failure, "a finished job failed:", id)
                if job:
                    fate.finished_at, fate.version = job["finished_at"], job["version"]
                    require(job["finished_at"], "a finished job came back:", job)
                else:
                    old = fate.version is None and fate.finished_at and at(fate.finished_at) < now.now - RETENTION
                    require(old, "a finished job's row is gone too soon:", id, fate)
        for id in [*now.jobs, *now.failures]:
            require(id in self.seen, "a row without an acceptance:", id)

    def _rows(self, now: Snapshot) -> None:
        for id, job in now.jobs.items():
            if job["finished_at"] is not None:
                require(job["follow_up"] is None, "a follow-up was forgotten:", id)
                require(PRIVATE not in str(job), "a finished job's row tells its payload (invariant 8):", id)
                continue
            asked = job["request"] is not None
            require(asked == (job["pipeline"] in PAYLOADS), "a payload is gone before its job's end:", job)
            owner = self.seen[id].owner
            require(job["claim_id"] == owner, "owned by another, or nobody, than the events tell:", job, owner)
            require(owner is None or at(job["run_at"]) <= now.now, "claimed before it was due:", id)
        for part in (now.failures, now.events, now.ledger, now.outbox):
            require(PRIVATE not in str(part), "what is private stands outside its job's row (invariants 8, 9):", part)
        self._lines(now)

    def _lines(self, now: Snapshot) -> None:
        """Of an order key one job may be claimed (the schema sees to that): the one that was accepted first."""
        lines: dict[str, list[dict[str, Any]]] = {}
        for job in now.unfinished().values():
            if job["order_key"] is not None:
                lines.setdefault(job["order_key"], []).append(job)
        for key, line in lines.items():
            head = min(line, key=lambda job: job["order_number"])
            require(not head["held_back"], "nobody is before it, and it is held back:", key, head)

    def _wake_ups(self, now: Snapshot) -> None:
        """A job nobody owns is owed a wake-up, or SQS has it: else it waits for recovery without need."""
        for id, job in now.unfinished().items():
            if job["claim_id"] is None and not job["held_back"] and id not in now.outbox:
                require(
                    self.acknowledged.get(id, 0) >= self.seen[id].gives_back, "a wake-up was forgotten, not sent:", id
                )
        for id in now.outbox:
            require(id in now.unfinished(), "a wake-up is owed to a job that has ended:", id)

    def _ledger(self, now: Snapshot) -> None:
        for id, row in now.ledger.items():
            # What is left to cleanup, and what was noted for a load that isn't accepted yet, is no job's.
            fate = self.seen.get(row["job_id"], Fate("", ended="failed"))
            allowed = {None: ("pending", "kept"), "finished": ("kept", "garbage"), "failed": ("garbage",)}[fate.ended]
            require(row["status"] in allowed, "the ledger isn't as its job's end is:", fate.ended, row)
            if removals := self.removed.get(id):
                require(row["status"] == "garbage", "something kept was removed:", row)
                require(len(removals) < 2 or row["removed_at"], "a removal was forgotten:", row)

    def _changes(self, before: Snapshot, now: Snapshot) -> None:
        for id in before.ledger.keys() - now.ledger.keys():
            times = self.removed.get(id, [])
            require(len(times) > 1, "a ledger row is gone before it was removed twice:", before.ledger[id])
            require(times[-1] - times[0] >= timedelta(minutes=15), "removed twice too soon:", id, times)
        new = [event for event in now.events if not before.events or event["id"] > before.events[-1]["id"]]
        told = {(event["job_id"], event["kind"]) for event in new}
        for id, job in before.unfinished().items():
            after = now.jobs.get(id)
            if after is None or after["finished_at"] is not None:
                asked_again = (id, "asked_again") in told
                follows = self.seen[id].follows
                require(follows == (job["follow_up"] is not None) or asked_again, "its follow-up:", id, follows)
                continue
            kept = [field for field in STAYS_TRUE if (job["follow_up"] or {}).get(field)]
            require(all((after["follow_up"] or {}).get(field) for field in kept), "what stays true was forgotten:", id)
            if after["deadline_at"] != job["deadline_at"]:
                first = job["started_at"] is None and (id, "claimed") in told
                moved = {(id, kind) for kind in ("pause_ended", "held_back", "released")} & told
                require(first or moved, "a deadline moved (invariant 7):", id)
        for event in new:
            job = now.jobs.get(event["job_id"])
            if event["kind"] == "claimed" and job and job["claim_id"] == event["claim_id"]:
                paused = before.pauses.keys() & now.pauses.keys() & {"*", job["pipeline"]}
                require(not paused, "claimed during a pause:", event)
        self._slots(before, now, told)

    def _slots(self, before: Snapshot, now: Snapshot, told: set[tuple[str, str]]) -> None:
        """A slot of a schedule is used by one job, or by a refusal that says why; a job uses a slot.

        What a pause holds doesn't count: at its end there may be more than the cap, but then nothing starts.
        """
        scheduled = {id for id, job in now.unfinished().items() if job["schedule"] is not None}
        counted = scheduled - {id for look in (before, now) for id, job in look.unfinished().items() if look.held(job)}
        within = scheduled <= before.jobs.keys() or len(counted) <= self.cap
        require(within, "more scheduled jobs are active than the cap allows:", len(counted))
        for key, schedule in now.schedules.items():
            known = before.schedules.get(key)
            used = bool(known) and known["last_due_at"] != schedule["last_due_at"]
            started = [
                id
                for id, job in now.jobs.items()
                if job["schedule"] == key and id not in before.jobs and (id, "accepted") in told
            ]
            require(len(started) <= used, "a scheduled job without its slot:", key, started)
            if used:
                paused = before.pauses.keys() & now.pauses.keys() & {"*", schedule["pipeline"]}
                require(not paused, "a schedule was started during a pause:", key)
                require(at(schedule["next_due_at"]) > at(schedule["last_due_at"]), "a slot that comes again:", key)
                why = started or schedule["last_refusal"] or any(kind == "asked_again" for _, kind in told)
                require(why, "a slot went by without a job:", key)

    def after_recovery(self) -> None:
        """No job is past its bound once recovery has run undisturbed."""
        now = self.snapshot()
        for id, job in now.unfinished().items():
            require(
                at(job["locked_until"]) > now.now or now.held(job), "a job is past its bound after recovery:", id, job
            )
