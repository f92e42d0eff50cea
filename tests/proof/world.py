"""What the proofs act in: engines on faulty connections, queues that lose and double, workers that die."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg

from chalicelib.db import Database, DatabaseAway, Row, Transaction
from chalicelib.engine import Engine, LedgerRow
from chalicelib.engine.lease import sql
from tests import toy
from tests.conftest import Clock
from tests.proof.watch import Watch, require
from tests.writing import CONFLICTS, REFUSED

CAP = 3
REMOVERS = {"s3_object": "tests.proof.world:remove"}

MODES = ("killed before", "killed after", "request lost", "reply lost")
"""The ways in which a call can go wrong."""

Point = Callable[[str, Callable[[], Any]], Any]
"""(name of the call, what it does) -> its reply; what a test makes of it: a death, a lost reply, a yield."""


LEFT_IN_A_SESSION = """
select name from pg_settings where source = 'session'
union all
select 'an advisory lock' from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()
union all
select name from pg_prepared_statements
union all
select name from pg_listening_channels() as name
"""


class Died(BaseException):
    """The process ends here: no handler of the product sees it."""


def name_of(text: str) -> str:
    """The file a statement comes from."""
    return next((name for name, known in sql._texts.items() if known is text or known == text), "a statement")


class Faulty(Database):
    """A connection whose every call passes a point."""

    def __init__(self, dsn: str, point: Point):
        super().__init__(dsn)
        self.point = point

    def run(self, sql: str, /, **params: object) -> list[Row]:
        return self.point(name_of(sql), Asking(self._open, lambda: super(Faulty, self).run(sql, **params)))

    def one(self, sql: str, /, **params: object) -> Row | None:
        rows = self.run(sql, **params)
        return rows[0] if rows else None

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        inner = super().transaction()
        tx = FaultyTransaction(inner.__enter__().connection, self.point)
        try:
            yield tx
        except BaseException as error:
            inner.__exit__(type(error), error, error.__traceback__)
            raise
        self.point("commit", Committing(inner))


class FaultyTransaction(Transaction):
    """The statements between two COMMITs pass points, too."""

    def __init__(self, connection: Any, point: Point):
        super().__init__(connection)
        self.point = point

    def run(self, sql: str, /, **params: object) -> list[Row]:
        return self.point(
            name_of(sql),
            Asking(lambda: self.connection, lambda: super(FaultyTransaction, self).run(sql, **params)),
        )


@dataclass
class Asking:
    """Runs a statement; where the server refuses it, the transaction it stands in is over there, too."""

    connection: Callable[[], Any]
    run: Callable[[], list[Row]]

    def __call__(self) -> list[Row]:
        return self.run()

    def refuse(self, state: str) -> None:
        self.connection().execute(REFUSED.format(state))


@dataclass
class Committing:
    """Ends a transaction; where it dies before, or the server refuses, all is rolled back."""

    block: Any

    def __call__(self) -> None:
        self.block.__exit__(None, None, None)

    def refuse(self, state: str) -> None:
        conflict = psycopg.errors.lookup(state)("a conflict")
        self.give_up(conflict)
        raise conflict

    def give_up(self, error: BaseException) -> None:
        self.block.__exit__(type(error), error, None)


class Queues:
    """SQS as it is at its worst: what is sent may vanish, come twice, come late, or be acknowledged to nobody."""

    def __init__(self, watch: Watch, point: Point = lambda name, act: act()):
        self.watch = watch
        self.point = point
        self.messages: list[tuple[str, UUID]] = []
        self.mood = "well"
        self.meanwhile: Callable[[], None] = lambda: None

    def send(self, queue: str, messages: list[tuple[UUID, int]], *, inline: bool = False) -> set[UUID]:
        return self.point("sqs", lambda: self._send(queue, messages))

    def _send(self, queue: str, messages: list[tuple[UUID, int]]) -> set[UUID]:
        if self.mood == "away":
            raise ConnectionError("SQS doesn't answer")
        # What SQS acknowledges is the wake-up that is owed now; a newer one, owed meanwhile, is another.
        newest = {job: self.watch.newest_event(job) for job, _ in messages}
        arrived = [] if self.mood == "lossy" else [(queue, job) for job, _ in messages]
        self.messages += arrived * (2 if self.mood == "doubling" else 1)
        self.meanwhile()
        if self.mood == "silent":
            raise TimeoutError("the reply was lost")
        acknowledged = {job for job, _ in messages[:: 2 if self.mood == "partial" else 1]}
        self.watch.acknowledged |= {str(job): newest[job] for job in acknowledged}
        return acknowledged


broken_removers = False
watching: list[Watch] = []


def remove(row: LedgerRow) -> None:
    """Removes what the ledger calls garbage; asked twice, for a stale worker may still have been writing."""
    if broken_removers:
        raise ConnectionError("object storage doesn't answer")
    [watch] = watching
    watch.removed.setdefault(str(row.id), []).append(watch.snapshot().now)


@dataclass
class World:
    """An installation: the database, two processes with a connection each, and somebody who watches."""

    dsn: str
    clock: Clock
    settings: Any
    watch: Watch
    queues: Queues = field(init=False)
    point: Point = field(default=lambda name, act: act())
    processes: list[Engine] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.queues = Queues(self.watch, lambda name, act: self.point(name, act))
        self.engine = self.process()
        self.worker = self.process()

    def process(self) -> Engine:
        """Another process of the installation."""
        database = Faulty(self.dsn, lambda name, act: self.point(name, act))
        engine = Engine(
            database,
            toy.PIPELINES,
            self.settings,
            self.queues,
            monotonic=self.clock.monotonic,
            sleep=self.clock.sleep,
        )
        self.processes.append(engine)
        return engine

    def reset(self) -> None:
        """As new: for the next example, schedule or crash."""
        global broken_removers
        broken_removers = False
        toy.behaviour.clear()
        self.point = lambda name, act: act()
        self.queues.messages.clear()
        self.queues.mood = "well"
        self.queues.meanwhile = lambda: None
        self.watch.reset()

    def close(self) -> None:
        for engine in self.processes:
            engine.db.close()

    def undisturbed(self) -> None:
        """Everything answers again."""
        global broken_removers
        broken_removers = False
        self.point = lambda name, act: act()
        self.queues.mood = "well"
        self.queues.meanwhile = lambda: None
        for pause in self.engine.pauses():
            self.engine.resume(pause.pipeline)

    def until_quiet(self, *, minutes: int = 60 * 40) -> None:
        """The scheduled functions run, workers work, messages come: until every job has ended and nothing is left."""
        self.undisturbed()
        self.watch.look()
        for engine in self.processes:
            left = engine.db.run(LEFT_IN_A_SESSION)
            require(not left, "something is left in a session (invariant 12):", left)
        passed = 0
        while passed <= minutes:
            self.engine.recover()
            self.watch.after_recovery()
            if self.watch.last.schedules:
                self.engine.catch_up()
            for queue in {job["queue"] for job in self.watch.last.unfinished().values()}:
                with suppress(toy.Crash):
                    self.worker.work_on(queue, [], lambda: 300)
            self.engine.clean_up(removers=REMOVERS)
            now = self.watch.look()
            unfinished = now.unfinished().values()
            garbage = [row for row in now.ledger.values() if row["status"] == "garbage"]
            if not unfinished and not garbage and not now.outbox:
                return
            # Nothing happens before the next of these: the minutes between are passed over.
            times = [job[time] for job in unfinished for time in ("run_at", "locked_until")]
            times += [row["next_try_at"] for row in garbage]
            ahead = [wait for time in times if (wait := datetime.fromisoformat(time) - now.now) > timedelta(0)]
            step = min(ahead, default=timedelta(minutes=1)) + timedelta(seconds=1)
            self.clock.advance(step)
            passed += step.total_seconds() / 60
        raise AssertionError(f"not quiet after {minutes} minutes: {self.watch.snapshot()}")


def disturb(mode: str, act: Callable[[], Any]) -> Any:
    """One call that goes wrong: killed before or after, its request or reply lost on the way, or a conflict."""
    if mode in CONFLICTS:
        act.refuse(mode)
    if mode in ("killed before", "request lost"):
        error: BaseException = Died() if mode == "killed before" else DatabaseAway("the request was lost")
        if isinstance(act, Committing):
            act.give_up(error)
        raise error
    act()
    raise Died if mode == "killed after" else DatabaseAway("the reply was lost")
