"""Runs two or three acts through every order of their statements and COMMITs, on connections of their own.

Each statement runs in an open transaction: its end and its COMMIT are two yield points. The orders are found by
running: where two steps of an order have to do with each other and could have come the other way round, that way is
run, too. Of orders that differ only in steps that have nothing to do with each other one is run, for they end alike:
dynamic partial-order reduction with source sets and sleep sets (Abdulla, Aronis, Jonsson and Sagonas, Optimal dynamic
partial order reduction, POPL 2014). Which steps those are nobody writes down: the server's locks tell.
"""

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import psycopg
from psycopg.rows import dict_row

from chalicelib.db import Database, Row, Transaction
from chalicelib.engine import Cancelled, Engine, LeaseLost, SubjectBusy, keeping
from chalicelib.engine.model import Counts
from tests.proof.watch import Violation, require
from tests.proof.world import World, name_of

LOOK = """
select (select max(state_change)::text
          from pg_stat_activity
         where datname = current_database()
           and backend_type = 'client backend'
           and pid <> all (%(pids)s)
           and pid <> pg_backend_pid()) as others
     , (select coalesce(json_agg(held), '[]')
          from (select pid, virtualtransaction, locktype, relation::regclass::text, relkind, page, tuple, transactionid
                     , mode, granted
                  from pg_locks left join pg_class on pg_class.oid = relation
                 where pid = any (%(pids)s)) as held) as locks
"""
"""What each actor's transaction has locked, and when any other session was last used."""

SEED = 7
"""Of what is drawn: which orders, where not all are run."""

ROWS = {"RowShareLock", "RowExclusiveLock"}
"""Modes of a relation whose rows are locked or written."""

CHANGE = 8
"""Who is let go on is so for about as many steps: were each step anybody's, whoever has one would always be early."""

PATIENCE = 20.0

TRIES = 200
"""Where one COMMIT lets two go on who waited, the server decides who is first: it is tried until that is the same."""


GAVE_UP = {"unrecoverable", "passed_over", "pauses_not_ended", "backed_off"}
"""What a scheduled function counts where it hears an error: it goes on, and nobody else is told."""


class Otherwise(Violation):
    """The same order went another way than the last time."""


class Stopped(BaseException):
    """The run is over; a thread that still waits ends."""


class Yielding(Database):
    """A connection whose statements each run in a transaction of their own, which is committed when it is its turn."""

    actor: "Actor"

    @property
    def pid(self) -> int:
        return self._open().info.backend_pid

    def run(self, sql: str, /, **params: object) -> list[Row]:
        with self.transaction(f"COMMIT of {name_of(sql)}") as tx:
            return tx.run(sql, **params)

    def one(self, sql: str, /, **params: object) -> Row | None:
        rows = self.run(sql, **params)
        return rows[0] if rows else None

    @contextmanager
    def transaction(self, end: str = "COMMIT") -> Iterator[Transaction]:
        with super().transaction() as tx:
            yielding = YieldingTransaction(tx.connection, self.actor)
            yield yielding
            for look in yielding.before_commit:
                look()
            self.actor.unseen |= not yielding.seen  # a COPY
        # Where nothing was written or locked, this end ends nothing.
        if self.actor.wrote or self.actor.unseen:
            self.actor.point(end)


class YieldingTransaction(Transaction):
    """The statements of a longer transaction: each end is a point."""

    def __init__(self, connection: "psycopg.Connection[Row]", actor: "Actor"):
        super().__init__(connection)
        self.actor = actor
        self.seen = False
        self.before_commit: list[Callable[[], object]] = []

    def run(self, sql: str, /, **params: object) -> list[Row]:
        try:
            rows = super().run(sql, **params)
        except Exception:
            self.actor.unseen = True  # its locks are gone already
            raise
        self.seen = True
        self.actor.point(name_of(sql))
        return rows


@dataclass
class Actor:
    """One act in a thread: it runs while it is its turn, from one point to the next."""

    name: str
    act: Callable[[], Any]
    pid: int
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    paused: threading.Event = field(default_factory=threading.Event)
    done: bool = False
    stopped: bool = False
    running: bool = False
    wrote: bool = False
    """Whether its transaction has written or locked anything."""
    unseen: bool = False
    """Whether its step did what its locks don't tell."""
    asked: set[str] = field(default_factory=set)
    """What its step asked outside of the database, which has to do with whoever asks it, too."""
    at: str = "its beginning"
    reply: Any = None

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


class Held:
    """What a transaction has locked until now: relations, by name, for one that each run makes has another number."""

    def __init__(self, locks: list[dict[str, Any]]):
        self.locks = {tuple(lock.values()) for lock in locks}
        self.transaction = locks[0]["virtualtransaction"] if locks else None
        relations = [lock for lock in locks if lock["locktype"] == "relation"]
        # Who locks a row or writes one has a number, or waits for somebody who has; of a sequence's values one in 32 is
        # written, and an order must go the same way each time.
        self.wrote = any(lock["locktype"] in ("transactionid", "tuple") or lock["relkind"] == "S" for lock in locks)
        self.read = {lock["relation"] for lock in relations}
        self.sought = {lock["relation"] for lock in relations if lock["mode"] in ROWS}
        # A sequence gives its next value to whoever comes next, committed or not.
        self.held = {number for number in self.sought if self.wrote} | {
            lock["relation"] for lock in relations if lock["relkind"] == "S"
        }
        # Whole tables (DDL), advisory locks: anybody may wait for them, or see more than rows.
        self.strong = any(lock["mode"] not in ROWS | {"AccessShareLock"} for lock in relations) or any(
            lock["locktype"] not in ("relation", "virtualxid", "transactionid", "tuple") for lock in locks
        )


@dataclass
class Step:
    """An actor's way to its next point, and what it had to do with, as the locks tell: functions and triggers, too.

    A transaction's locks are taken as those of each of its steps: more than they were at the first ones, never less.
    """

    actor: int
    told: list[str]
    """How far each came: the same whenever this way is gone."""
    moved: set[int]
    """Who went on: the actor, and whoever had waited for what it held."""
    read: set[int]
    """Relations that were read."""
    sought: set[int]
    """Of those, where rows were looked for to be locked or written: who does, meets the locks of others."""
    held: set[int]
    """Of those, where a transaction that hasn't ended holds any."""
    ended: set[int]
    """Where one that has ended held any."""
    alone: bool
    """Whether it did what locks don't tell: it moved the clock, asked SQS, failed. It has to do with everything."""

    def meets(self, other: "Step") -> bool:
        """Whether they have to do with each other: what comes of them may depend on which is first.

        A statement reads what was committed before it (READ COMMITTED, no other level is used), so that of what isn't
        committed yet only its locks are met, by whoever wants to lock. Two COMMITs make no difference to each other.
        """
        return (
            self.alone
            or other.alone
            or bool(self.moved & other.moved)
            or any(one.ended & two.read or one.held & two.sought for one, two in ((self, other), (other, self)))
        )


class Stage:
    """Lets actors step in a given order; a step that waits for a lock is left to wait."""

    def __init__(self, watcher: "psycopg.Connection[Row]", actors: list[Actor]):
        self.watcher = watcher
        self.actors = actors
        self.story: list[str] = []
        self.held, self.others = self.look()

    def look(self) -> tuple[list[Held], str]:
        row = self.ask(LOOK, pids=[actor.pid for actor in self.actors])
        return [Held([lock for lock in row["locks"] if lock["pid"] == actor.pid]) for actor in self.actors], row[
            "others"
        ]

    def blocked(self, actor: Actor) -> bool:
        return bool(self.ask("select cardinality(pg_blocking_pids(%(pid)s)) as locks", pid=actor.pid)["locks"])

    def ask(self, sql: str, **params: object) -> Row:
        return self.watcher.execute(sql, params).fetchone()

    def ready(self) -> list[int]:
        return [number for number, actor in enumerate(self.actors) if not actor.done and not actor.running]

    def step(self, number: int) -> Step:
        """Until its next point, its end, or a lock that another one holds; whoever waited for a lock goes on, too."""
        actor, began = self.actors[number], len(self.story)
        actor.paused.clear()
        actor.running = True
        actor.turn.release()
        self.settle(actor, "")
        for waiting in self.actors:
            if waiting.running:
                self.settle(waiting, "again")
        before, others = self.held, self.others
        self.held, self.others = self.look()
        changes = list(zip(self.actors, before, self.held, strict=True))
        moved = {at for at, (_, was, now) in enumerate(changes) if at == number or was.locks != now.locks}
        changes = [changes[at] for at in moved]
        asked = set().union(*(each.asked for each, _, _ in changes))
        step = Step(
            number,
            self.story[began:],
            moved,
            read=asked.union(*(now.read for _, _, now in changes)),
            sought=set().union(*(now.sought for _, _, now in changes)),
            held=set().union(*(now.held for _, _, now in changes)),
            ended=asked.union(*(was.held for _, was, now in changes if was.transaction != now.transaction)),
            alone=others != self.others or any(each.unseen or was.strong or now.strong for each, was, now in changes),
        )
        for each, _, now in changes:
            each.wrote, each.unseen, each.asked = now.wrote, False, set()
        return step

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


@dataclass(eq=False)
class Moment:
    """Where an order is after some steps, and who steps next in one of the runs."""

    before: "Moment | None" = None
    asleep: dict[int, Step] = field(default_factory=dict)
    """Who needn't step: what would follow is, but for the order of what has nothing to do with it, run elsewhere."""
    chosen: set[int] = field(default_factory=set)
    begun: dict[int, Step] = field(default_factory=dict)
    """Of the chosen, whose step was run from here, and which it was."""
    turns: list[int] = field(default_factory=list)
    """The way here."""


def follow(stage: Stage, moment: Moment, actor: int, draw: random.Random) -> tuple[list[tuple[Moment, Step]], bool]:
    """Go there, then with the actor, then on with anybody awake; whether that came to the end of all acts."""
    turns = [*moment.turns, actor]
    moments = [moment]
    while moments[0].before:
        moments.insert(0, moments[0].before)
    order: list[tuple[Moment, Step]] = []
    favour = draw.sample(range(len(stage.actors)), len(stage.actors))
    while ready := stage.ready():
        if len(order) == len(moments):
            last, step = order[-1]
            known = (last.asleep | last.begun).values()
            asleep = {other.actor: other for other in known if other.actor != step.actor and not other.meets(step)}
            moments.append(Moment(last, asleep, turns=list(turns)))
            awake = [number for number in ready if number not in asleep]
            if not awake:
                return order, False
            if not draw.randrange(CHANGE):
                draw.shuffle(favour)
            turns.append(min(awake, key=favour.index))
            moments[-1].chosen.add(turns[-1])
        here, turn = moments[len(order)], turns[len(order)]
        if turn in ready:
            order.append((here, stage.step(turn)))
        if turn not in ready or here.begun.setdefault(turn, order[-1][1]).told != order[-1][1].told:
            was = here.begun[turn].told if turn in here.begun else stage.actors[turn].name
            raise Otherwise(f"the same order went another way: {'; '.join(stage.story)}, and not: {was}")
    waiting = [actor.name for actor in stage.actors if actor.running]
    require(not waiting, "a deadlock:", waiting, *stage.story)
    return order, True


def reversals(order: list[tuple[Moment, Step]]) -> Iterator[tuple[Moment, int]]:
    """Who else has to step, and when, so that steps that meet come the other way round, too."""
    steps = [step for _, step in order]
    causes: list[set[int]] = []
    races = []
    for late, step in enumerate(steps):
        causes.append(set())
        for early in reversed(range(late)):
            if early not in causes[late] and steps[early].meets(step):
                causes[late] |= {early} | causes[early]
                if step.actor not in steps[early].moved:
                    races.append((early, late))
    for early, late in races:
        beside = {at for at in range(early + 1, late) if early not in causes[at]} | {late}
        first = [steps[at].actor for at in sorted(beside) if not causes[at] & beside]
        moment, _ = order[early]
        if not (moment.chosen | moment.asleep.keys()) & set(first):
            moment.chosen.add(first[0])
            yield moment, first[0]


connections: dict[tuple[str, int], Yielding] = {}
"""An actor's connection serves it in each run: a new one costs more than the run."""

watchers: dict[str, "psycopg.Connection[Row]"] = {}
"""Whoever looks at the locks; with prepared statements, for planning them takes seven times as long as running them."""


def recover(engine: Engine) -> dict[str, int]:
    """What recovery does, without the relay that follows it; what it counted."""
    counts = Counts()
    keeping.recover(replace(engine._around, monotonic=lambda: 0.0), engine._whole_of, counts)  # its time is never up
    only_known_errors([counts.by])
    return counts.by


def only_known_errors(replies: Iterable[Any]) -> None:
    """Each is told that it is done, or that it has lost."""
    for reply in replies:
        known = not isinstance(reply, BaseException) or isinstance(reply, LeaseLost | Cancelled | SubjectBusy)
        require(known, "an error that nobody is to hear:", repr(reply))
        if isinstance(reply, dict):
            require(not GAVE_UP & reply.keys(), "a scheduled function has heard an error:", reply)


def nobody_hears_the_same(heard: dict[Any, set[Any]]) -> None:
    """Over all orders of acts, or these have never met."""
    require(all(len(each) > 1 for each in heard.values()), "it hears the same in every order:", heard)


def owner_of(world: World, job: object) -> int | None:
    """Whose a job is by now, for all to see; asked by an actor, it has to do with nobody's step."""
    claimed = "select claim_id from engine.job where id = %s and finished_at is null"
    row = watchers[world.watch.dsn].execute(claimed, [job]).fetchone()
    return row["claim_id"] if row else None


def close() -> None:
    for database in connections.values():
        database.close()
    for watcher in watchers.values():
        watcher.close()
    connections.clear()
    watchers.clear()


@contextmanager
def staged(world: World, acts: dict[str, Callable[[Database], Any]]) -> Iterator[Stage]:
    actors = []
    for number, (name, act) in enumerate(acts.items()):
        database = connections.setdefault((world.dsn, number), Yielding(world.dsn))
        actors.append(Actor(name, lambda act=act, database=database: act(database), database.pid))
        database.actor = actors[-1]
    if world.watch.dsn not in watchers:
        watchers[world.watch.dsn] = psycopg.connect(world.watch.dsn, autocommit=True, row_factory=dict_row)
    threads = [threading.Thread(target=actor.body, daemon=True) for actor in actors]
    for thread in threads:
        thread.start()
    try:
        yield Stage(watchers[world.watch.dsn], actors)
    finally:
        for actor in actors:
            actor.stopped = True
            actor.turn.release()
        for thread in threads:
            thread.join(PATIENCE)


def explore(
    world: World,
    prepare: Callable[[], dict[str, Callable[[Database], Any]]],
    judge: Callable[[dict[str, Any]], None],
    *,
    most: int | None = None,
) -> int:
    """Run every order, or as many as `most`, drawn by SEED, the same ones each time; how many there were."""
    waiting = [(Moment(chosen={0}), 0)]
    count, draw = 0, random.Random(SEED)
    while waiting and count != most:
        at = -1 if most is None else draw.randrange(len(waiting))
        if most and count % 2:  # the earlier they part, the more differs afterwards
            at = min(range(len(waiting)), key=lambda at: len(waiting[at][0].turns))
        moment, actor = waiting.pop(at)
        for left in reversed(range(TRIES)):
            try:
                order, complete = run(world, prepare, judge, moment, actor, draw)
                break
            except Otherwise:
                if not left:
                    raise
        count += complete
        waiting += reversals(order)
    return count


def run(
    world: World,
    prepare: Callable[[], dict[str, Callable[[Database], Any]]],
    judge: Callable[[dict[str, Any]], None],
    moment: Moment,
    actor: int,
    draw: random.Random,
) -> tuple[list[tuple[Moment, Step]], bool]:
    """Follow one order, and judge what came of it where it came to the end of all acts."""
    with staged(world, prepare()) as stage:
        order, complete = follow(stage, moment, actor, draw)
        if complete:
            replies = {each.name: each.reply for each in stage.actors}
            try:
                judge(replies)
            except Exception as error:
                story = "; ".join(stage.story)
                raise Violation(f"{error}\nthe order: {story}\nreplies: {replies}") from error
    return order, complete
