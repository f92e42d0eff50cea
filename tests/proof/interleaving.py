"""Runs two or three acts through every order of their statements and COMMITs, on connections of their own.

Each statement runs in an open transaction: its end and its COMMIT are two yield points. The orders are found by
running: a run follows a prefix of choices and notes which others there were; those are the prefixes of later runs.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg

from chalicelib.db import Database, Row, Transaction
from tests.proof.watch import Violation, require
from tests.proof.world import name_of

READS = {"read_clock", "list_pauses", "list_overdue_jobs", "find_job", "find_active_job", "read_back", "find_failure"}
"""They lock nothing and write nothing, so that their end is the only point."""

UNWATCHED = {"read_clock", "list_pauses", "finish_run"}
"""Nothing of what runs beside them is read or written by them: no point at all."""

PATIENCE = 20.0


class Stopped(BaseException):
    """The run is over; a thread that still waits ends."""


class Yielding(Database):
    """A connection whose statements each run in a transaction of their own, which is committed when it is its turn."""

    def __init__(self, dsn: str, point: Callable[[str], None]):
        super().__init__(dsn)
        self.point = point

    @property
    def pid(self) -> int:
        return self._open().info.backend_pid

    def run(self, sql: str, /, **params: object) -> list[Row]:
        name = name_of(sql)
        if name in UNWATCHED:
            return super().run(sql, **params)
        with super().transaction() as tx:
            rows = tx.run(sql, **params)
            if name not in READS:
                self.point(name)
        self.point(f"COMMIT of {name}" if name not in READS else name)
        return rows

    def one(self, sql: str, /, **params: object) -> Row | None:
        rows = self.run(sql, **params)
        return rows[0] if rows else None

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with super().transaction() as tx:
            yield YieldingTransaction(tx.connection, self.point)
        self.point("COMMIT")


class YieldingTransaction(Transaction):
    """The statements of a longer transaction: each end is a point."""

    def __init__(self, connection: "psycopg.Connection[Row]", point: Callable[[str], None]):
        super().__init__(connection)
        self.point = point

    def run(self, sql: str, /, **params: object) -> list[Row]:
        rows = super().run(sql, **params)
        self.point(name_of(sql))
        return rows


@dataclass
class Actor:
    """One act in a thread: it runs while it is its turn, from one point to the next."""

    name: str
    act: Callable[[], Any]
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    paused: threading.Event = field(default_factory=threading.Event)
    done: bool = False
    stopped: bool = False
    running: bool = False
    at: str = "its beginning"
    reply: Any = None
    pid: int | None = None

    def point(self, name: str) -> None:
        self.at = name
        self.paused.set()
        self.turn.acquire()
        if self.stopped:
            raise Stopped

    def body(self) -> None:
        self.turn.acquire()
        try:
            if not self.stopped:
                self.reply = self.act()
        except Stopped:
            pass
        except BaseException as error:  # noqa: BLE001 - it is the reply, whatever it is: the expectation judges
            self.reply = error
        self.done = True
        self.at = "its end"
        self.paused.set()


class Stage:
    """Lets actors step in a given order; a step that waits for a lock is left to wait."""

    def __init__(self, watcher: "psycopg.Connection[Any]", actors: list[Actor]):
        self.watcher = watcher
        self.actors = actors
        self.story: list[str] = []

    def blocked(self, actor: Actor) -> bool:
        if actor.pid is None:
            return False
        row = self.watcher.execute("select cardinality(pg_blocking_pids(%s)) as locks", [actor.pid]).fetchone()
        return bool(row["locks"])

    def step(self, actor: Actor) -> None:
        """Until its next point, its end, or a lock that another one holds."""
        actor.paused.clear()
        actor.running = True
        actor.turn.release()
        self.settle(actor, "")

    def settle(self, actor: Actor, how: str) -> None:
        give_up = time.monotonic() + PATIENCE
        wait = 0.004
        while not actor.paused.wait(wait):
            wait = 0.002
            if self.blocked(actor):
                if not how:
                    self.story.append(f"{actor.name} waits")
                return
            require(time.monotonic() < give_up, "neither a point nor a lock:", actor.name, actor.at, *self.story)
        actor.running = False
        self.story.append(f"{actor.name}: {actor.at}")

    def ready(self) -> list[Actor]:
        """Who may step; whoever waited for a lock that has gone meanwhile comes to its point first."""
        for actor in self.actors:
            if actor.running:
                self.settle(actor, "again")
        return [actor for actor in self.actors if not actor.done and not actor.running]

    def run(self, prefix: list[int]) -> list[tuple[int, int]]:
        """Follow the prefix, then the first choice each time; (choice, how many there were) for each step."""
        taken: list[tuple[int, int]] = []
        while ready := self.ready():
            choice = prefix[len(taken)] if len(taken) < len(prefix) else 0
            require(choice < len(ready), "the same order went another way:", *self.story)
            taken.append((choice, len(ready)))
            self.step(ready[choice])
        waiting = [actor.name for actor in self.actors if actor.running]
        require(not waiting, "a deadlock:", waiting, *self.story)
        return taken


connections: dict[tuple[str, int], Yielding] = {}
"""An actor's connection serves it in each run: a new one costs more than the run."""


def close() -> None:
    for database in connections.values():
        database.close()
    connections.clear()


def explore(
    dsn: str,
    watcher: "psycopg.Connection[Any]",
    prepare: Callable[[], dict[str, Callable[[Database], Any]]],
    judge: Callable[[dict[str, Any]], None],
    *,
    most: int = 10_000,
) -> int:
    """Run every order; how many there were. Beyond `most` they are drawn at random, the same ones each time."""
    waiting: list[list[int]] = [[]]
    count, draw = 0, random.Random(7)
    while waiting and count < most:
        prefix = waiting.pop(draw.randrange(len(waiting)) if count + len(waiting) > most else -1)
        taken = _once(dsn, watcher, prepare(), prefix, judge)
        count += 1
        for depth in range(len(prefix), len(taken)):
            waiting += [[choice for choice, _ in taken[:depth]] + [other] for other in range(1, taken[depth][1])]
    return count


def _once(
    dsn: str,
    watcher: "psycopg.Connection[Any]",
    acts: dict[str, Callable[[Database], Any]],
    prefix: list[int],
    judge: Callable[[dict[str, Any]], None],
) -> list[tuple[int, int]]:
    actors = []
    for name, act in acts.items():
        actor = Actor(name, lambda: None)
        database = connections.setdefault((dsn, len(actors)), Yielding(dsn, actor.point))
        database.point = actor.point
        actor.act = lambda act=act, database=database: act(database)
        actor.pid = database.pid
        actors.append(actor)
    stage = Stage(watcher, actors)
    threads = [threading.Thread(target=actor.body, daemon=True) for actor in actors]
    for thread in threads:
        thread.start()
    try:
        taken = stage.run(prefix)
        try:
            judge({actor.name: actor.reply for actor in actors})
        except Exception as error:
            replies = {actor.name: actor.reply for actor in actors}
            raise Violation(f"{error}\nthe order: {'; '.join(stage.story)}\nreplies: {replies}") from error
    finally:
        for actor in actors:
            actor.stopped = True
            actor.turn.release()
        for thread in threads:
            thread.join(PATIENCE)
    return taken
