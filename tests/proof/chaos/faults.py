"""What happens to the stack: a schedule drawn from a seed, and a journal of what each fault has really hit."""

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import psycopg

from .proxy import Proxy
from .stage import IDLE, LEASE, Stage

HUNT = 10
"""Seconds for which a fault looks for somebody whom it hits."""

SPARED = 3
"""Who is in this attempt is left alone: whoever loses it fails, rightly, and nothing is shown by that."""


@dataclass(frozen=True)
class Planned:
    """A fault of the schedule: when, which, for how long. Whom it hits is seen when it is time."""

    at: float
    kind: str
    seconds: float = 0


@dataclass
class Fault:
    """What happened: from when to when, and to which claim, where it was aimed at one."""

    kind: str
    began: float
    ended: float
    claim: int | None = None
    hits: int = 1
    about: str = ""


@dataclass
class Journal:
    """Every fault that hit somebody."""

    faults: list[Fault] = field(default_factory=list)
    began: float = field(default_factory=time.time)

    def note(self, kind: str, began: float, claim: int | None = None, hits: int = 1, about: str = "") -> None:
        if hits:
            self.faults.append(Fault(kind, began, time.time(), claim, hits, about))

    def count(self, kind: str) -> int:
        return sum(fault.hits for fault in list(self.faults) if fault.kind == kind)

    def lines(self) -> Iterator[str]:
        for fault in sorted(self.faults, key=lambda fault: fault.began):
            claim = f"claim {fault.claim}" if fault.claim else ""
            hits = f"x {fault.hits}" if fault.hits > 1 else ""
            length = fault.ended - fault.began
            parts = (f"+{fault.began - self.began:6.1f} s", f"{length:4.1f} s", fault.kind, claim, hits, fault.about)
            yield "  ".join(part for part in parts if part)


LANES: dict[str, tuple[tuple[str, ...], tuple[float, float], tuple[float, float]]] = {
    "processes": (("killed",), (2.0, 5.0), (0, 0)),
    "zombies": (
        ("stopped", "left open in a publication", "stopped", "left open in a load"),
        (0.5, 3.0),
        (LEASE + 2.0, LEASE + 4.0),
    ),
    "database": (
        ("connections ended", "connections ended", "restarted", "connections ended", "crashed"),
        (5, 10),
        (0, 0),
    ),
    "network": (
        (
            "SQS away",
            "triple store losing replies",
            "object storage away",
            "data service refusing",
            "SQS losing replies",
            "triple store silent",
            "data service losing replies",
            "triple store away",
            "object storage refusing",
            "data service away",
        ),
        (0.5, 2.0),
        (2.0, 5.0),
    ),
    "messages": (("duplicates",), (2.0, 4.0), (0, 0)),
}
"""A lane to its kinds in their order, the pause before each, how long it lasts. One fault of a lane at a time."""

NETWORK = {
    "SQS": ("aws", ("sqs",)),
    "object storage": ("aws", ("s3",)),
    "triple store": ("triples", ("update", "query")),
    "data service": ("exports", ("exports",)),
}


def schedule(seed: int, seconds: float) -> dict[str, list[Planned]]:
    """The faults of so many seconds; the same seed gives the same."""
    made: dict[str, list[Planned]] = {}
    for lane, (kinds, pauses, lengths) in LANES.items():
        drawn, at, number = random.Random(f"{seed} {lane}"), 0.0, 0
        made[lane] = []
        while (at := at + drawn.uniform(*pauses)) < seconds:
            length = round(drawn.uniform(*lengths), 1)
            made[lane].append(Planned(round(at, 1), kinds[number % len(kinds)], length))
            at, number = at + length, number + 1
    return made


class Disturber:
    """Carries a schedule out."""

    def __init__(self, stage: Stage, journal: Journal, seed: int):
        self.stage = stage
        self.journal = journal
        self.seed = seed
        self.stop = threading.Event()
        self.errors: list[BaseException] = []
        self._database = threading.Lock()  # nobody looks at it while it restarts

    @contextmanager
    def disturbing(self, planned: dict[str, list[Planned]]) -> Iterator[None]:
        """Each lane in a thread of its own; at the end nothing is stopped, away or down."""
        threads = [
            threading.Thread(target=self._lane, args=(lane, faults), name=lane) for lane, faults in planned.items()
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stop.set()
            for thread in threads:
                thread.join()

    def _lane(self, lane: str, faults: list[Planned]) -> None:
        began = time.monotonic()
        drawn = random.Random(f"{self.seed} {lane} victims")
        for fault in faults:
            if self.stop.wait(max(0.0, began + fault.at - time.monotonic())):
                return
            try:
                self._do(fault, drawn)
            except psycopg.OperationalError:
                continue  # the database was away: another lane's doing
            except BaseException as error:  # noqa: BLE001 - told at the end
                self.errors.append(error)
                return

    def _do(self, fault: Planned, drawn: random.Random) -> None:
        if fault.kind in ("killed", "stopped", "duplicates", "restarted", "crashed"):
            getattr(self, f"_{fault.kind}")(fault, drawn)
        elif fault.kind == "connections ended":
            self._connections_ended(drawn)
        elif fault.kind.startswith("left open"):
            self._left_open(fault, drawn)
        else:
            what = next(name for name in NETWORK if fault.kind.startswith(name))
            mood = fault.kind.removeprefix(f"{what} ")
            if what == "data service" and not self.stage.elsewhere:
                what = "object storage"  # the one that is built in has its files there, and nothing else
            self._network(what, mood, fault.seconds)

    # ---- processes

    def _killed(self, fault: Planned, drawn: random.Random) -> None:
        """Whoever is busy; now and then somebody else than a worker."""
        role = drawn.choice(("Worker",) * 6 + ("APIHandler", "Recovery", "Cleanup"))
        deep = drawn.random() < 0.7  # one that has a claim: most moments of a worker are between two
        victim = self._await(lambda: self._busy(role, owning=deep and role == "Worker", drawn=drawn), patience=3)
        if victim:
            pid, claim = victim
            began = time.time()
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self.journal.note("killed", began, claim, about=role)

    def _stopped(self, fault: Planned, drawn: random.Random) -> None:
        """A zombie: its lease runs out while it sleeps, and it wakes up and goes on."""
        victim = self._await(lambda: self._put_to_sleep(drawn, fault.seconds), patience=HUNT)
        if not victim:
            return
        pid, claim = victim
        began = time.time()
        try:
            self.stop.wait(fault.seconds)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self.journal.note("stopped", began, claim)

    def _put_to_sleep(self, drawn: random.Random, seconds: float) -> tuple[int, int] | None:
        victim = self._busy("Worker", owning=True, drawn=drawn)
        if victim is None:
            return None
        with suppress(ProcessLookupError):
            os.kill(victim[0], signal.SIGSTOP)
            time.sleep(0.05)  # what it had logged before is there now
            claim = self._claim_of(victim[0])
            if claim is not None and not self._is_spared(claim, seconds - 2):
                return victim[0], claim
            os.kill(victim[0], signal.SIGCONT)
        return None

    def _left_open(self, fault: Planned, drawn: random.Random) -> None:
        """A worker is gone in the middle of a transaction, unknown to the server; later it is killed, or wakes up."""
        began = time.time()
        load = fault.kind.endswith("load")
        caught = self._in_a_load() if load else self._in_a_publication()
        if caught is None:
            return
        pid, claim, backend = caught
        try:
            ended = self._await(lambda: self._session_is_over(backend), patience=IDLE + 4)
            if ended:
                self.stop.wait(max(0.0, fault.seconds - (time.time() - began)))
                self.journal.note("left open", began, claim, about="a load" if load else "a publication")
        finally:
            with suppress(ProcessLookupError):
                if drawn.random() < 0.5:
                    os.kill(pid, signal.SIGKILL)
                    self.journal.note("killed", began, claim, about="asleep in its transaction")
                else:
                    os.kill(pid, signal.SIGCONT)

    def _in_a_publication(self) -> tuple[int, int | None, int] | None:
        """Caught between the replace and the commit: the triple store takes its time meanwhile."""
        triples = self.stage.proxies["triples"]
        with triples.being("slow", "update", "query"), self._looking() as database:

            def caught() -> tuple[int, int | None, int] | None:
                rows = database.execute(
                    "select pid, client_port, xact_start from pg_stat_activity"
                    " where usename = 'leaseway_app' and state = 'idle in transaction'"
                ).fetchall()
                for backend, port, since in rows:
                    if pid := self._behind(port):
                        os.kill(pid, signal.SIGSTOP)
                        time.sleep(0.05)
                        still = database.execute(
                            "select from pg_stat_activity"
                            " where pid = %s and state = 'idle in transaction' and xact_start = %s",
                            [backend, since],
                        ).fetchone()
                        claim = self._claim_of(pid)
                        if still is not None and claim is not None and not self._is_spared(claim):
                            return pid, claim, backend
                        os.kill(pid, signal.SIGCONT)
                return None

            return self._await(caught, patience=HUNT, pause=0.03)

    def _in_a_load(self) -> tuple[int, int | None, int] | None:
        """Caught while it waits for its store, which is held here: then it holds its dataset, its job and its rows."""
        with self._looking() as database, database.transaction():
            [(there,)] = database.execute("select to_regclass('store.counts') is not null").fetchall()
            if not there:
                return None
            database.execute("set local lock_timeout = '2s'")
            database.execute("lock table store.counts in share mode")
            [(mine,)] = database.execute("select pg_backend_pid()").fetchall()

            def caught() -> tuple[int, int | None, int] | None:
                rows = database.execute(
                    "select pid, client_port from pg_stat_activity"
                    " where usename = 'leaseway_app' and %s = any (pg_blocking_pids(pid))",
                    [mine],
                ).fetchall()
                for backend, port in rows:
                    if pid := self._behind(port):
                        os.kill(pid, signal.SIGSTOP)
                        claim = self._claim_of(pid)
                        if claim is not None and not self._is_spared(claim):
                            return pid, claim, backend
                        os.kill(pid, signal.SIGCONT)
                return None

            return self._await(caught, patience=3, pause=0.03)

    def _session_is_over(self, backend: int) -> bool:
        with self._looking() as database:
            found = database.execute("select state from pg_stat_activity where pid = %s", [backend]).fetchone()
            return found is None

    def _busy(self, role: str, *, owning: bool, drawn: random.Random) -> tuple[int, int | None] | None:
        running = [
            status
            for status in self.stage.running()
            if status["role"] == role and status["request_id"] and is_awake(status["pid"])
        ]
        drawn.shuffle(running)
        for status in running:
            claim = claim_in(status) if role == "Worker" else None
            if (claim is not None or not owning) and not (claim and self._is_spared(claim)):
                return int(status["pid"]), claim
        return None

    def _claim_of(self, pid: int) -> int | None:
        return next((claim_in(status) for status in self.stage.running() if status["pid"] == pid), None)

    def _behind(self, port: int) -> int | None:
        """The function process that speaks to PostgreSQL from this port."""
        for status in self.stage.running():
            if status["role"] == "Worker" and is_awake(status["pid"]):
                with suppress(psutil.Error):
                    if any(c.laddr.port == port for c in psutil.Process(status["pid"]).net_connections("tcp4")):
                        return int(status["pid"])
        return None

    def _is_spared(self, claim: int, seconds: float = 120) -> bool:
        """Whoever is in his last attempt, or has a lease that would outlast so many seconds."""
        with self._looking() as database:
            found = database.execute(
                "select attempts from engine.job where claim_id = %s and finished_at is null"
                " and locked_until < engine.clock() + make_interval(secs => %s)",
                [claim, seconds],
            ).fetchone()
            return found is None or found[0] >= SPARED

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

    def _connections_ended(self, drawn: random.Random) -> None:
        """Some of the functions' sessions, whatever they are in; not of who is in his last attempt."""
        with self._looking() as database:
            rows = database.execute(
                "select pid, client_port from pg_stat_activity where usename = 'leaseway_app' order by random()"
            ).fetchall()
            began, hits = time.time(), 0
            for backend, port in rows[: drawn.randint(1, 4)]:
                pid = self._behind(port)
                claim = self._claim_of(pid) if pid else None
                if claim and self._is_spared(claim):
                    continue
                ended = database.execute("select pg_terminate_backend(%s)", [backend]).fetchone()
                hits += bool(ended and ended[0])
            self.journal.note("connections ended", began, hits=hits)

    def _restarted(self, fault: Planned, drawn: random.Random) -> None:
        """As an administrator does it: open transactions are rolled back."""
        self._down("restarted", lambda server: server.stop())

    def _crashed(self, fault: Planned, drawn: random.Random) -> None:
        """Without a word: what was committed is there again, what wasn't logged is empty."""

        def kill(server: Any) -> None:
            process = psutil.Process(server.pid())
            family = [process, *process.children(recursive=True)]
            process.send_signal(signal.SIGQUIT)
            psutil.wait_procs(family, timeout=20)

        self._down("crashed", kill)

    def _down(self, kind: str, how: Callable[[Any], None]) -> None:
        self._await(self._nobody_is_at_the_end, patience=6)
        server = self.stage.stack.postgresql
        assert server is not None
        with self._database:
            began = time.time()
            how(server)
            server.start()
            self.journal.note(f"database {kind}", began)

    # ---- the rest

    def _network(self, what: str, mood: str, seconds: float) -> None:
        label, names = NETWORK[what]
        if (what, mood) == ("triple store", "losing replies"):
            names = ("update",)  # a read whose reply is lost is one that wasn't answered
        proxy: Proxy = self.stage.proxies[label]
        before = {name: proxy.suffered[name, mood] for name in names}
        began = time.time()

        def hits() -> int:
            return sum(proxy.suffered[name, mood] - before[name] for name in names)

        with proxy.being(mood, *names):
            self.stop.wait(seconds)
            self._await(hits, patience=HUNT * 2)
        self.journal.note(f"{what} {mood}", began, hits=hits())

    def _duplicates(self, fault: Planned, drawn: random.Random) -> None:
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
            client.send_message_batch(
                QueueUrl=url, Entries=[{"Id": str(n), "MessageBody": job} for n, job in enumerate(chosen)]
            )
            self.journal.note("duplicates", began, hits=len(chosen))

    def _await[T](self, question: Callable[[], T | None], patience: float, pause: float = 0.05) -> T | None:
        end = time.monotonic() + patience
        while not (answer := question()):
            if time.monotonic() > end or self.stop.is_set():
                return None
            time.sleep(pause)
        return answer


def is_awake(pid: int) -> bool:
    """Whether it lives, and no other lane holds it."""
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False


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
