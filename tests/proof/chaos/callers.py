"""Who asks for work while everything fails, over the front port; who ticks; and who looks at what readers see."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import uuid4

import httpx
import psycopg
from botocore.exceptions import BotoCoreError, ClientError

from chalicelib.cli.local import run_function
from chalicelib.cli.remote import Refused

from .history import STOCK, Answer, Asked, Look, Seen, triples
from .stage import CONTRACTS, PUBLISHED, RECORDS, Stage, package

AT_ONCE = 3
"""Loads of a dataset that are under way at a time: one works, the others are held back."""

ROWS, STOCKED = 3, 20
"""Rows of a load: its own ones, where loads are counted; everybody's, in the stock, where the last load wins."""

PATIENCE = 120


@dataclass(frozen=True)
class Pace:
    """How many datasets loads are counted in; seconds between two requests of each caller, and between two faults."""

    counts: int = 1
    load: float = 1
    publication: float = 0.3
    refresh: float = 1.5
    faults: float = 1
    """Times as long as the lanes say."""


@dataclass
class Callers:
    """Keep everything busy; remember each 202, and each answer that nobody should get."""

    stage: Stage
    pace: Pace
    accepted: dict[str, Asked] = field(default_factory=dict)
    unexpected: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    """None, or a 5xx, to a request that was sent again; and when."""
    seen: list[Seen] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    turns: list[tuple[float, int]] = field(default_factory=list)
    errors: list[BaseException] = field(default_factory=list)
    calling: threading.Event = field(default_factory=threading.Event)
    """Set once nobody may ask for anything any more."""
    over: threading.Event = field(default_factory=threading.Event)
    unfinished: Counter[tuple[str, str]] = field(default_factory=Counter)
    loaded: set[str] = field(default_factory=set)
    """Datasets that have had a load: before, there is nothing to be published of them."""
    most: int | None = None
    """Stop asking after so many jobs."""
    _numbers: Counter[str] = field(default_factory=Counter)
    _looking: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Everybody at work; at the end only what was accepted is left to be done."""
        self._enable_refreshes()
        acts: list[Callable[[], None]] = [self._count, self._tick, self._clean, self._look, self._turn, self._refresh]
        acts += [partial(self._publish, dataset) for dataset in PUBLISHED]
        acts += [partial(self._load, dataset) for dataset in self.stage.loaded]
        threads = [threading.Thread(target=self._run, args=(act,), name=f"caller {n}") for n, act in enumerate(acts)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.calling.set()
            self.over.set()
            for thread in threads:
                thread.join()

    def begun(self, seconds: float) -> bool:
        """Whether a job of each kind, and a load of each store, is done within so many seconds; then all is warm."""
        end, wanted = time.monotonic() + seconds, {"publication", "load", "refresh"}
        while time.monotonic() < end and not self.errors:
            with self._database() as database:
                rows = database.execute("select distinct pipeline from engine.job where finished_at is not null")
                done = {pipeline for (pipeline,) in rows.fetchall()}
                if wanted <= done and len(self.loaded) == len(self.stage.loaded):
                    return True
            time.sleep(0.3)
        return False

    def drained(self, seconds: float) -> bool:
        """Ask for nothing more, and wait until every job has ended."""
        self.calling.set()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(psycopg.OperationalError), self._database() as database:
                [(left,)] = database.execute("select count(*) from engine.job where finished_at is null").fetchall()
                if left == 0:
                    return True
            time.sleep(0.5)
        return False

    def _run(self, act: Callable[[], None]) -> None:
        try:
            act()
        except BaseException as error:  # noqa: BLE001 - told at the end
            self.errors.append(error)

    # ---- asking

    def _publish(self, dataset: str) -> None:
        while not self.calling.wait(self.pace.publication):
            there = dataset in self.loaded or dataset not in self.stage.loaded
            if there and not self.unfinished["publication", dataset]:
                self._ask("publication", f"/datasets/{dataset}/publications", dataset, json={})

    def _refresh(self) -> None:
        while not self.calling.wait(self.pace.refresh):
            if not self.unfinished["refresh", ""]:
                self._ask("refresh", "/refreshes", "", json={})

    def _load(self, dataset: str) -> None:
        while not self.calling.wait(self.pace.load):
            if self.unfinished["load", dataset] < AT_ONCE:
                self._numbers[dataset] += 1
                number = self._numbers[dataset]
                if dataset in self.stage.counts:
                    body = "load,row\n" + "".join(f"{number},{row}\n" for row in range(ROWS))
                else:
                    body = "id,generation\n" + "".join(f"{row},{number}\n" for row in range(STOCKED))
                headers = {"Content-Type": "text/csv"}
                self._ask("load", f"/datasets/{dataset}/loads", dataset, number, content=body, headers=headers)

    def _ask(self, kind: str, path: str, dataset: str, number: int = 0, **request: Any) -> None:
        """Ask until there is an answer; with the same key it is the same request."""
        if self.most is not None and len(self.accepted) >= self.most:
            return
        key = uuid4().hex
        headers = request.pop("headers", {}) | {
            "Authorization": f"Bearer {self.stage.token}",
            "Idempotency-Key": key,
        }
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            what, began = "no answer", time.time()
            with suppress(httpx.TransportError):
                answer = self.stage.http.post(f"{self.stage.url}{path}", headers=headers, **request)
                if answer.status_code == 202:
                    job = answer.json()["id"]
                    self.accepted.setdefault(job, Asked(kind, dataset, number))
                    self.unfinished[kind, dataset] += 1
                    return
                if answer.status_code < 500 and answer.status_code != 429:
                    self.unexpected.append(f"{path}: {answer.status_code} {answer.text[:300]}")
                    return
                what = f"{answer.status_code} {answer.text[:300]}"
            self.answers.append(Answer(path, began, time.time(), what))
            time.sleep(0.3)
        self.unexpected.append(f"{path}: no 202 within {PATIENCE} s")

    def _enable_refreshes(self) -> None:
        answer = self.stage.http.put(
            f"{self.stage.url}/internal/refresh",
            headers={"Authorization": f"Bearer {self.stage.token}"},
            json={"rollback": package(self.stage.stack)},
            timeout=30,
        )
        answer.raise_for_status()

    # ---- the world around

    def _tick(self) -> None:
        """Recovery every second and a half: a minute of EventBridge's is long for a test."""
        while not self.over.wait(1.5):
            with suppress(Refused, ClientError, BotoCoreError):  # it was killed, or its database is away
                run_function(self.stage.stack, "Recovery")

    def _clean(self) -> None:
        while not self.over.wait(6):
            with suppress(Refused, ClientError, BotoCoreError):
                run_function(self.stage.stack, "Cleanup")

    def _turn(self) -> None:
        """The source changes, all of its records at once."""
        generation = 1
        while not self.over.wait(0.5):
            with suppress(psycopg.OperationalError), psycopg.connect(self.stage.outside, autocommit=True) as outside:
                generation += 1
                outside.execute("update feed.readings set generation = %s", [generation])
                self.turns.append((time.time(), generation))

    def _count(self) -> None:
        while not self.over.wait(0.4):
            with suppress(psycopg.OperationalError), self._database() as database:
                rows = database.execute(
                    "select pipeline, coalesce(subject ->> 'dataset', ''), count(*)"
                    " from engine.job where finished_at is null group by 1, 2"
                ).fetchall()
                self.unfinished = Counter({(pipeline, dataset): count for pipeline, dataset, count in rows})
                if len(self.loaded) < len(self.stage.loaded):
                    rows = database.execute("select distinct dataset_id from dataset.load").fetchall()
                    self.loaded = {dataset for (dataset,) in rows}

    def _look(self) -> None:
        """What readers see meanwhile must be whole at each instant."""
        while not self.over.wait(1):
            for dataset in PUBLISHED:
                self.at_graph(f"{self.stage.stack.public_url}/datasets/{dataset}")
            self.at_tables()

    def at_tables(self) -> None:
        """See the targets and the stock as readers do."""
        with self._looking:
            with suppress(psycopg.OperationalError), psycopg.connect(self.stage.outside, autocommit=True) as outside:
                for table in CONTRACTS.values():
                    self._whole(outside, table, RECORDS)
            with suppress(psycopg.OperationalError), self._database() as database:
                [(there,)] = database.execute("select to_regclass('store.stock') is not null").fetchall()
                if there:
                    self._whole(database, STOCK, STOCKED)

    def at_graph(self, graph: str) -> tuple[int, ...]:
        """See a graph as readers do; its fences."""
        with suppress(httpx.TransportError), self._looking:  # one after the other, for their order is looked at, too
            self.seen.append(Seen(graph, *triples(self.stage.http, self.stage.oxigraph, graph)))
            return self.seen[-1].fences
        return ()

    def _whole(self, database: psycopg.Connection[Any], table: str, rows: int) -> None:
        count, generations = self.at_table(database, table)
        if (count, generations) not in ((0, 0), (rows, 1)):
            self.unexpected.append(f"{table} had {count} rows of {generations} generations at once")

    def at_table(self, database: psycopg.Connection[Any], table: str) -> tuple[int, int]:
        """See a table as readers do: how many rows, of how many generations."""
        at = time.time()
        [(count, generations, generation)] = database.execute(
            f"select count(*), count(distinct generation), coalesce(min(generation), 0) from {table}"
        ).fetchall()
        self.looks.append(Look(table, at, generation))
        return count, generations

    @contextmanager
    def _database(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.stage.dsn, autocommit=True, connect_timeout=5) as connection:
            yield connection
