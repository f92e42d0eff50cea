"""What happens to the stack: a schedule drawn from a seed, and a journal of what each fault has really hit."""

import json
import os
import random
import re
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol
from urllib.parse import urlsplit
from uuid import UUID

import psutil
import psycopg

from .proxy import PATIENCE, Held, Proxy
from .stage import IDLE, INVOCATION, LEASE, Stage

HUNT = 15
"""Seconds for which a fault waits for somebody whom it hits, before another one has its turn."""

SPARED = 3
"""Who is in this attempt is left alone: whoever loses it fails, rightly, and nothing is shown by that."""


@dataclass(frozen=True)
class Planned:
    """A fault: how long after the one before, which, for how long. Whom it hits is seen when it is time."""

    pause: float
    kind: str
    seconds: float


@dataclass
class Fault:
    """What happened: from when to when, and to which claim, where it was aimed at one, or may have hit one of some."""

    kind: str
    began: float
    ended: float
    claim: int | None = None
    hits: int = 1
    about: str = ""
    maybe: tuple[int, ...] = ()


@dataclass
class Journal:
    """Every fault that hit somebody."""

    faults: list[Fault] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    def note(
        self,
        kind: str,
        began: float,
        claim: int | None = None,
        hits: int = 1,
        about: str = "",
        maybe: tuple[int, ...] = (),
    ) -> None:
        if hits:
            self.faults.append(Fault(kind, began, time.time(), claim, hits, about, maybe))

    def hits(self) -> Counter[str]:
        """How often each kind has hit somebody."""
        hits: Counter[str] = Counter()
        for fault in list(self.faults):
            hits[fault.kind] += fault.hits
        return hits

    def lines(self) -> Iterator[str]:
        for fault in sorted(self.faults, key=lambda fault: fault.began):
            claim = f"claim {fault.claim}" if fault.claim else ""
            hits = f"x {fault.hits}" if fault.hits > 1 else ""
            length = fault.ended - fault.began
            parts = (f"+{fault.began - self.began:6.1f} s", f"{length:4.1f} s", fault.kind, claim, hits, fault.about)
            yield "  ".join(part for part in parts if part)


LANES: dict[str, tuple[tuple[str, ...], tuple[float, float], tuple[float, float]]] = {
    "processes": (
        (
            "killed anywhere",
            "killed in a load",
            "killed in a refresh",
            "killed at an upload",
            "killed at a file",
            "killed at the catalogue",
            "killed elsewhere",
        ),
        (1.0, 3.0),
        (0, 0),
    ),
    "zombies": (("stopped before its commit", "stopped in a refresh"), (0.5, 2.0), (0, 0)),
    "sleepers": (("stopped", "left open in a publication", "left open in a load"), (0.5, 3.0), (0, 0)),
    "connections": (("connections ended", "idle connections ended"), (2.0, 4.0), (0, 0)),
    "database": (("database restarted", "database crashed"), (8.0, 16.0), (0, 0)),
    "network": (
        (
            "SQS away",
            "SQS losing replies",
            "object storage away",
            "object storage refusing",
            "triple store losing replies",
            "triple store silent",
            "triple store away",
        ),
        (1.5, 3.0),
        (1.5, 3.0),
    ),
    "late": (("triple store late",), (4.0, 8.0), (0, 0)),
    "data service": (
        ("data service refusing", "data service losing replies", "data service away"),
        (5.0, 8.0),
        (1.5, 3.0),
    ),
    "messages": (("duplicates",), (2.0, 4.0), (0, 0)),
}
"""A lane to its kinds, the pause before each, how long it lasts. One at a time, each kind once a turn."""

COMMITS = "PERSIST_DATA"
"""The state in which a publication reads its files' sizes, writes to the catalogue, and commits."""

NETWORK = {
    "SQS": ("aws", ("sqs",)),
    "object storage": ("aws", ("s3", "s3 put", "s3 head")),
    "triple store": ("triples", ("update", "query")),
    "data service": ("exports", ("exports",)),
}


IN_USE = ["active", "idle in transaction", "idle in transaction (aborted)"]
END_SESSIONS = """
select client_port, pg_terminate_backend(pid)
  from (select pid, client_port
          from pg_stat_activity
         where usename = 'leaseway_app'
           and state = any (%s)
           and client_port = any (%s)
         order by random()
         limit %s) as chosen
"""
LAST = "select claim_id from engine.job where claim_id = any (%s) and finished_at is null and attempts >= %s"


def plan(seed: int, lane: str, pace: float = 1) -> Iterator[Planned]:
    """The faults of a lane, without end, with pauses so many times as long; the same seed gives the same."""
    kinds, pauses, lengths = LANES[lane]
    drawn = random.Random(f"{seed} {lane}")
    while True:
        for kind in drawn.sample(kinds, len(kinds)):
            yield Planned(round(drawn.uniform(*pauses) * pace, 1), kind, round(drawn.uniform(*lengths), 1))


@dataclass(frozen=True)
class Victim:
    """A worker with a claim: its process, and what it is at."""

    pid: int
    claim: int
    job: UUID
    state: str


class Looks(Protocol):
    """Who sees what readers see."""

    def at_graph(self, graph: str) -> tuple[int, ...]:
        """See a graph; its fences."""

    def at_tables(self) -> None:
        """See the targets, and the stock."""


class Disturber:
    """Does what is planned, for as long as it may."""

    def __init__(self, stage: Stage, journal: Journal, seed: int, pace: float, looks: Looks):
        self.stage = stage
        self.journal = journal
        self.seed = seed
        self.pace = pace
        self.looks = looks
        self.stop = threading.Event()
        self.short = threading.Event()
        """Set once nobody is to be lost whose lease is a long one."""
        self.errors: list[BaseException] = []
        self._database = threading.Lock()  # nobody looks at it while it restarts
        self._connected = threading.Lock()  # or a zombie's connection would be gone when it wakes up
        self._open = threading.Lock()  # or a transaction that is left open would not be there to be ended

    @contextmanager
    def disturbing(self) -> Iterator[None]:
        """Each lane in a thread of its own; at the end nothing is stopped, away or down."""
        threads = [threading.Thread(target=self._lane, args=(lane,), name=lane) for lane in LANES]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def _lane(self, lane: str) -> None:
        drawn = random.Random(f"{self.seed} {lane} victims")
        for fault in plan(self.seed, lane, self.pace):
            if self.stop.wait(fault.pause):
                return
            try:
                self._do(fault, drawn)
            except psycopg.OperationalError:
                continue  # the database was away: another lane's doing
            except BaseException as error:  # noqa: BLE001 - told at the end
                self.errors.append(error)
                return

    def _do(self, fault: Planned, drawn: random.Random) -> None:
        match fault.kind.partition(" ")[0]:
            case "killed":
                self._killed(fault, drawn)
            case "stopped":
                self._stopped(fault, drawn)
            case "left":
                self._left_open(fault, drawn)
            case "connections" | "idle":
                self._connections_ended(fault, drawn)
            case "database":
                self._down(fault)
            case "duplicates":
                self._duplicates(drawn)
            case _ if fault.kind == "triple store late":
                self._late(fault)
            case _:
                self._network(fault)

    # ---- processes

    def _killed(self, fault: Planned, drawn: random.Random) -> None:
        """Anywhere, or in the middle of something."""
        match fault.kind:
            case "killed elsewhere":
                self._kill_another(fault, drawn.choice(("APIHandler", "Recovery", "Cleanup")))
            case "killed anywhere":
                longest = INVOCATION if drawn.random() < 0.25 and not self.short.is_set() else None
                if victim := self._await(lambda: self._put_to_sleep(self._busy(drawn, longest)), HUNT):
                    self._kill(fault, victim)
            case "killed in a load" | "killed in a refresh":
                state = fault.kind.rpartition(" ")[2].upper()
                if victim := self._await(lambda: self._caught_in(state), HUNT, pause=1):
                    self._kill(fault, victim)
            case "killed at an upload":
                with self._caught("aws", "s3 put", lambda state: True) as victim:
                    self._kill(fault, self._put_to_sleep(victim))
            case "killed at a file":
                with self._caught("aws", "s3 head", lambda state: state != COMMITS) as victim:
                    self._kill(fault, self._put_to_sleep(victim))
            case "killed at the catalogue":
                with self._caught("triples", "update", lambda state: state == COMMITS) as victim:
                    self._kill(fault, self._put_to_sleep(victim))

    def _kill(self, fault: Planned, victim: Victim | None) -> None:
        """Who sleeps has this very claim, and no newer one, which would be lost to a fault that nobody knows."""
        began = time.time()
        if victim and told(victim.pid, signal.SIGKILL):
            self.journal.note(fault.kind, began, victim.claim, about=victim.state)

    def _kill_another(self, fault: Planned, role: str) -> None:
        def busy() -> int | None:
            return next((s["pid"] for s in self.stage.running() if s["role"] == role and s["request_id"]), None)

        pid, began = self._await(busy, HUNT), time.time()
        if pid and told(pid, signal.SIGKILL):
            self.journal.note(fault.kind, began, about=role)

    def _stopped(self, fault: Planned, drawn: random.Random) -> None:
        """A zombie: its lease runs out while it sleeps, and it wakes up and goes on beside its successor."""
        if fault.kind == "stopped":
            state = drawn.choice(("", "LOAD"))
            if state:
                victim = self._await(lambda: self._caught_in(state), HUNT, pause=1)
            else:
                victim = self._await(lambda: self._put_to_sleep(self._busy(drawn)), HUNT)
            if victim:
                self._sleep(fault, victim)
            return
        if fault.kind == "stopped in a refresh":
            victim = self._await(lambda: self._caught_in("REFRESH"), HUNT, pause=1)
        else:
            with self._caught("aws", "s3 head", lambda state: state == COMMITS) as caught:
                victim = self._put_to_sleep(caught)
        if victim and victim.state == "REFRESH":
            # Only once its successor is done, for what it has in hand is older than what stands there then.
            with self._connected:
                self._sleep(fault, victim, after="finished")
                for _ in range(5):
                    time.sleep(0.3)  # now it goes on
                    self.looks.at_tables()
        elif victim:
            with self._connected:
                self._sleep(fault, victim)
                self.stop.wait(2)  # now it goes on

    def _put_to_sleep(self, victim: Victim | None) -> Victim | None:
        if victim and told(victim.pid, signal.SIGSTOP):
            time.sleep(0.05)  # what it had logged before is there now
            if self._still(victim):
                return victim
            told(victim.pid, signal.SIGCONT)
        return None

    def _sleep(
        self, fault: Planned, victim: Victim, end: signal.Signals = signal.SIGCONT, after: str = "claimed"
    ) -> None:
        """Let it sleep until its claim is lost, and then until another has the job (or is done), or none will."""
        began, lost = time.time(), None
        try:
            lost = self._await(lambda: self._happened(victim, 0, "worker_lost", "failed"), LEASE + 15)
            if lost:
                self._await(lambda: self._happened(victim, 1, after, "failed"), HUNT)
        finally:
            # It may have been ended, for its invocation's time was up.
            if is_asleep(victim.pid) and told(victim.pid, end) and lost:
                what = "woke up" if end == signal.SIGCONT else "killed in its sleep"
                self.journal.note(fault.kind, began, victim.claim, about=f"{victim.state}, {what}")
            else:
                self.journal.note("slept", began, victim.claim, about=f"{victim.state}, {fault.kind}")

    def _happened(self, victim: Victim, later: int, *kinds: str) -> bool:
        """Whether one of these happened to the job under this claim or, later by 1, under its successor."""
        with suppress(psycopg.OperationalError), self._looking() as database:
            return bool(
                database.execute(
                    "select 1 from engine.job_event where job_id = %s and claim_id >= %s and kind = any (%s) limit 1",
                    [victim.job, victim.claim + later, list(kinds)],
                ).fetchall()
            )
        return False

    def _left_open(self, fault: Planned, drawn: random.Random) -> None:
        """A worker is gone in the middle of a transaction, unknown to the server; later it is killed, or wakes up."""
        end = drawn.choice((signal.SIGCONT, signal.SIGKILL))
        if fault.kind.endswith("load"):
            if not (self.short.is_set() and self.journal.hits()[fault.kind]):
                self._left_open_in_a_load(fault, end)
            return
        # Between the replace and the commit. Its claim can't be lost before its session is.
        with self._caught("triples", "update", lambda state: state == COMMITS) as caught:
            victim = self._put_to_sleep(caught)
        if victim:
            self._sleep(fault, victim, end)

    def _left_open_in_a_load(self, fault: Planned, end: signal.Signals) -> None:
        """Caught while it waits for its store: then it holds its dataset, its job and its rows."""
        began, victim, left = time.time(), None, None
        try:
            with self._looking() as database:
                caught = self._await(lambda: self._caught_in_a_load(database), HUNT)
                if caught:
                    victim, backend = caught
                    over = "select 1 where not exists (select from pg_stat_activity where pid = %s)"
                    with self._open:
                        left = self._await(lambda: database.execute(over, [backend]).fetchall(), IDLE + 4)
        finally:
            if victim and told(victim.pid, end) and left:
                what = "woke up" if end == signal.SIGCONT else "killed in its sleep"
                self.journal.note(fault.kind, began, victim.claim, about=what)
            elif victim:
                self.journal.note("slept", began, victim.claim, about=fault.kind)

    def _caught_in_a_load(self, database: psycopg.Connection[Any]) -> tuple[Victim, int] | None:
        stores = ", ".join(f"store.{dataset}" for dataset in self.stage.loaded)
        return self._caught_waiting(database, stores, "LOAD", INVOCATION)

    def _caught_in(self, state: str) -> Victim | None:
        """Caught at a note in the ledger: loads and refreshes are over before they are found at work."""
        with self._looking() as database:
            caught = self._caught_waiting(database, "engine.ledger", state)
        return caught[0] if caught else None

    def _caught_waiting(
        self, database: psycopg.Connection[Any], tables: str, state: str, longest: float | None = None
    ) -> tuple[Victim, int] | None:
        """Who has come to wait for tables that are held for a moment, put to sleep, and the session."""
        with suppress(psycopg.errors.LockNotAvailable), database.transaction():
            database.execute("set local lock_timeout = '1s'")
            database.execute(f"lock table {tables} in share mode")
            return self._await(lambda: self._waiting(database, state, longest), 1)
        return None

    def _waiting(
        self, database: psycopg.Connection[Any], state: str, longest: float | None
    ) -> tuple[Victim, int] | None:
        database.execute("select pg_stat_clear_snapshot()")  # else a transaction sees the sessions of its first look
        rows = database.execute(
            "select pid, client_port from pg_stat_activity"
            " where usename = 'leaseway_app' and pg_backend_pid() = any (pg_blocking_pids(pid))"
        ).fetchall()
        for backend, port in rows:
            pid = self._behind(port, self.stage.dsn)
            victim = self._victim(pid, longest) if pid else None
            if victim and victim.state == state and self._put_to_sleep(victim):
                return victim, backend
        return None

    @contextmanager
    def _caught(self, label: str, name: str, fits: Callable[[str], bool]) -> Iterator[Victim | None]:
        """A worker in a state that fits, which has been answered that, and hasn't heard it yet."""
        with self.stage.proxies[label].trapping(name, replies=True) as queue:
            end = time.monotonic() + HUNT
            while time.monotonic() < end and not self.stop.is_set():
                with suppress(Empty):
                    held = queue.get(timeout=0.1)
                    try:
                        pid = self._behind(held.port, self.stage.proxies[label].url)
                        victim = self._victim(pid) if pid else None
                        if victim and fits(victim.state):
                            yield victim
                            return
                    finally:
                        held.let_go()
        yield None

    def _busy(self, drawn: random.Random, longest: float | None = None) -> Victim | None:
        """A worker that has a claim."""
        for status in drawn.sample(running := self.stage.running(), len(running)):
            at_work = status["role"] == "Worker" and status["request_id"]
            if at_work and (victim := self._victim(status["pid"], longest)):
                return victim
        return None

    def _victim(self, pid: int, longest: float | None = None) -> Victim | None:
        """Who has this claim; not who is to be left alone: asleep, in the last attempt, or with a long lease."""
        claim = self._claim_of(pid)
        if claim is None or is_asleep(pid):
            return None
        with self._looking() as database:
            found = database.execute(
                "select id, state from engine.job where claim_id = %s and finished_at is null"
                " and attempts < %s and locked_until < (select engine.clock()) + make_interval(secs => %s)",
                [claim, SPARED, longest or LEASE + 2],
            ).fetchone()
            return Victim(pid, claim, *found) if found else None

    def _still(self, victim: Victim) -> bool:
        return self._claim_of(victim.pid) == victim.claim

    def _claim_of(self, pid: int) -> int | None:
        return next((claim_in(status) for status in self.stage.running() if status["pid"] == pid), None)

    def _behind(self, port: int, server: str) -> int | None:
        """The worker's process that speaks from this port to this server."""
        for status in self.stage.running():
            if status["role"] == "Worker":
                with suppress(psutil.Error):
                    if port in _ports(status["pid"], server):
                        return int(status["pid"])
        return None

    # ---- the database

    @contextmanager
    def _looking(self) -> Iterator[psycopg.Connection[Any]]:
        with self._database:
            pass  # not while it restarts
        with psycopg.connect(self.stage.dsn, autocommit=True, connect_timeout=5) as connection:
            yield connection

    def _nobody_is_at_the_end(self) -> bool:
        with self._looking() as database:
            [(last,)] = database.execute(
                "select count(*) from engine.job where claim_id is not null and finished_at is null and attempts >= %s",
                [SPARED],
            ).fetchall()
            return bool(last == 0)

    def _connections_ended(self, fault: Planned, drawn: random.Random) -> None:
        """Sessions of functions that are in a statement or transaction, or in none; not of who is in his last attempt.

        An idle one is opened anew by whoever had it, unnoticed, unless he has begun a statement meanwhile.
        """
        idle, most = fault.kind.startswith("idle"), drawn.randint(1, 4)
        with self._looking() as database:
            self._await(lambda: self._ended(database, fault.kind, ["idle"] if idle else IN_USE, most), HUNT)

    def _ended(self, database: psycopg.Connection[Any], kind: str, states: list[str], most: int) -> bool:
        began, behind = time.time(), {}
        for status in self.stage.running():
            if is_asleep(status["pid"]):
                continue
            with suppress(psutil.Error):
                for port in _ports(status["pid"], self.stage.dsn):
                    behind[port] = status
        claims = {status["pid"]: claim_in(status) for status in behind.values()}
        last = {claim for (claim,) in database.execute(LAST, [list(claims.values()), SPARED]).fetchall()}
        ports = [port for port, status in behind.items() if claims[status["pid"]] not in last]
        rows = database.execute(END_SESSIONS, [states, ports, most]).fetchall()
        for port in [port for port, ended in rows if ended]:
            status = behind[port]
            role, seen = status["role"], (claims[status["pid"]], claim_in(status))
            if seen[0] == seen[1] is not None or role != "Worker":
                self.journal.note(kind, began, seen[0], about=role)
            else:  # one of the two, or one that was made between them: its log is cut when it is over
                self.journal.note(kind, began, about=role, maybe=tuple(claim for claim in seen if claim))
        return bool(rows)

    def _down(self, fault: Planned) -> None:
        """As an administrator does it, or without a word: then what wasn't logged is empty."""
        self._await(self._nobody_is_at_the_end, 6)
        server = self.stage.stack.postgresql
        assert server is not None
        with self._connected, self._open, self._database:
            began = time.time()
            if fault.kind == "database restarted":
                server.stop()
            else:
                process = psutil.Process(server.pid())
                family = [process, *process.children(recursive=True)]
                process.send_signal(signal.SIGQUIT)
                psutil.wait_procs(family, timeout=20)
            server.start()
            self.journal.note(fault.kind, began)

    # ---- the rest

    def _network(self, fault: Planned) -> None:
        what = next(name for name in NETWORK if fault.kind.startswith(name))
        mood = fault.kind.removeprefix(f"{what} ")
        if what == "data service" and not self._await(lambda: self.stage.elsewhere, float("inf"), pause=0.5):
            return  # the one that is built in has its files in object storage, and nothing else
        label, names = NETWORK[what]
        if fault.kind == "triple store losing replies":
            names = ("update",)  # a read whose reply is lost is one that wasn't answered
        proxy: Proxy = self.stage.proxies[label]
        before = {name: proxy.suffered[name, mood] for name in names}
        began = time.time()

        def hits() -> int:
            return sum(proxy.suffered[name, mood] - before[name] for name in names)

        with proxy.being(mood, *names):
            self.stop.wait(fault.seconds)
            self._await(hits, HUNT)
        self.journal.note(fault.kind, began, hits=hits())

    def _late(self, fault: Planned) -> None:
        """A write of a graph that its worker has given up arrives once a newer claim has written, or never."""
        with self.stage.proxies["triples"].trapping("update") as queue:
            held = self._await(lambda: self._owners(queue), HUNT)
        if held is None:
            return
        began = time.time()
        graph, fence = written(held)
        newer = None
        try:
            newer = self._await(lambda: max(self.looks.at_graph(graph), default=0) > fence, PATIENCE - 2, pause=0.3)
        finally:
            held.let_go(arrives=bool(newer))
        if newer:
            time.sleep(0.5)  # now it has arrived
            self.looks.at_graph(graph)
            self.journal.note(fault.kind, began, about=f"of claim {fence}")

    def _owners(self, queue: SimpleQueue[Held]) -> Held | None:
        """The next write by whoever owns its job: not cleanup's, and not one of a zombie, which is to come at once."""
        with suppress(Empty):
            held, owned = queue.get(timeout=0.2), False
            try:
                with self._looking() as database:
                    claim = [written(held)[1]]
                    owned = bool(database.execute("select 1 from engine.job where claim_id = %s", claim).fetchall())
                if owned:
                    return held
            finally:
                if not owned:
                    held.let_go()
        return None

    def _duplicates(self, drawn: random.Random) -> None:
        """Wake-ups that come again, of jobs that run, wait or have ended long ago."""
        with self._looking() as database:
            rows = database.execute(
                "(select job_id from engine.job_event where kind = 'claimed' order by id desc limit 12)"
                " union (select id from engine.job where finished_at is null limit 12)"
            ).fetchall()
        jobs = [str(job) for (job,) in rows]
        if jobs:
            chosen = [drawn.choice(jobs) for _ in range(10)]
            began = time.time()
            client = self.stage.stack.client("sqs")
            url = client.get_queue_url(QueueName="leaseway-work")["QueueUrl"]
            answer = client.send_message_batch(
                QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": job} for n, job in enumerate(chosen)]
            )
            self.journal.note("duplicates", began, hits=len(answer.get("Successful", [])))

    def _await[T](self, question: Callable[[], T | None], patience: float, pause: float = 0.05) -> T | None:
        end = time.monotonic() + patience
        while not (answer := question()):
            if time.monotonic() > end or self.stop.is_set():
                return None
            time.sleep(pause)
        return answer


def is_asleep(pid: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    return False


def told(pid: int, what: signal.Signals) -> bool:
    """Whether there was still somebody to be told."""
    with suppress(ProcessLookupError):
        os.kill(pid, what)
        return True
    return False


def written(held: Held) -> tuple[str, int]:
    """The graph that an update is to write, and under which fence."""
    text = held.body.decode()
    graph, fence = (
        re.search(r"^DELETE \{ GRAPH <([^>]+)>", text, re.MULTILINE),
        re.search(r"urn:leaseway:staging:(\d+)", text),
    )
    assert graph
    assert fence
    return graph[1], int(fence[1])


def _ports(pid: int, server: str) -> set[int]:
    """From which a process speaks to this server; to another one somebody else may speak from the same port."""
    there = urlsplit(server).port
    connections = psutil.Process(pid).net_connections("tcp4")
    return {connection.laddr.port for connection in connections if connection.raddr and connection.raddr.port == there}


def claim_in(status: dict[str, Any]) -> int | None:
    """The claim that a process has, by its own log; it is cut at the end of each invocation."""
    claim = None
    with suppress(OSError):
        for line in Path(status["log"]).read_text(errors="replace").splitlines():
            with suppress(ValueError):
                said = json.loads(line)
                if isinstance(said, dict) and said.get("pid") == status["pid"]:
                    if said.get("event") == "claimed":
                        claim = int(said["claim"])
                    elif said.get("event") == "worked":
                        claim = None
    return claim
