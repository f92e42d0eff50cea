"""Accepting and working, durable, one row a transaction, batch 1; beside the bare SQL under pgbench."""

import io
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self
from uuid import UUID

import psycopg
from psycopg import ClientCursor

from chalicelib.db import Database, Row, Transaction
from chalicelib.engine import Engine, Failure, Job

from . import pipeline
from .report import Size, ratios, spread, table
from .server import Server

CONNECTIONS = (1, 8, 16)
A_SECOND = 5_000
"""Jobs laid ready for each second: more than anyone here works on."""

CLAIM, ASK = 7_171_717_171_717, UUID("51a71c51-a71c-4000-8000-51a71c51a71c")
"""What stands for the claim and the ask until pgbench puts its own in."""

BARE = """
create schema bare;
create table bare.job (id bigint generated always as identity primary key, subject jsonb not null, state text not null
                     , claim bigint, locked_until timestamptz);
create sequence bare.claim;
create sequence bare.message cache 1;
"""
BARE_ACCEPT = """insert into bare.job (subject, state) values ('{"name": "n"}', 'queued') returning id;"""
BARE_WORK = """
select nextval('bare.message') as message \\gset
with due as (select id from bare.job where id = :message and state = 'queued' for update skip locked)
update bare.job
   set state = 'running', claim = nextval('bare.claim'), locked_until = clock_timestamp() + interval '1 min'
  from due where job.id = due.id returning job.id, job.claim \\gset
update bare.job set state = 'done', locked_until = null where id = :id and claim = :claim;
"""
"""The least that a queue in PostgreSQL does: one table, one index, no outbox, no history, no bounds."""


def run(size: Size, server: Server, folder: Path) -> list[str]:
    rates: dict[tuple[str, str, int], list[float]] = {}
    with server.database() as dsn, psycopg.connect(dsn, autocommit=True) as admin:
        admin.execute(BARE)
        admin.execute("grant usage on schema bare to leaseway_app")
        admin.execute("grant all on all tables in schema bare to leaseway_app")
        admin.execute("grant all on all sequences in schema bare to leaseway_app")
        app = server.of_the_app(dsn)
        scripts = {}
        for name, text in {
            ("accept", "bare"): BARE_ACCEPT,
            ("work", "bare"): BARE_WORK,
            ("accept", "same"): sent(app, "accept"),
            ("work", "same"): sent(app, "work"),
        }.items():
            scripts[name] = folder / f"{'-'.join(name)}.sql"
            scripts[name].write_text(text)
        with Workers(max(CONNECTIONS), app) as workers:
            for _ in range(size.runs):
                for connections in CONNECTIONS:
                    for act in ("accept", "work"):
                        for how in ("leaseway", "same", "bare"):
                            ready(admin, act, how, round(A_SECOND * (size.slice + 0.5)))
                            if how == "leaseway":
                                rate = workers.rate(act, connections, size.slice)
                            else:
                                rate = pgbench(server, app, scripts[act, how], connections, size.slice)
                            rates.setdefault((act, how, connections), []).append(rate)
            beside = beside_a_snapshot(size, dsn, admin, workers)
    return [*tables(rates), "", *beside]


def beside_a_snapshot(size: Size, dsn: str, admin: psycopg.Connection, workers: "Workers") -> list[str]:
    """T13: somebody looks at the past and does nothing more; what is swept meanwhile stays as dead rows."""
    acts = {
        "accept": "accept",
        "work": "claim to finish, by a wake-up",
        "due": "claim to finish, the oldest that is due",
    }
    connections = CONNECTIONS[1]
    rates: dict[tuple[str, bool], list[float]] = {}
    for _ in range(size.runs):
        for held in (False, True):
            with idle_snapshot(dsn) if held else nullcontext():
                admin.execute(pipeline.CLEAR)
                for statement in pipeline.swept(size.swept):
                    admin.execute(statement)
                laid = round(len(acts) * A_SECOND * (size.slice + 0.5))
                admin.execute(pipeline.jobs(pipeline.QUEUED, laid, pipeline.ID))
                admin.execute("vacuum (analyze) engine.job, engine.outbox, engine.job_event")
                admin.execute("checkpoint")
                for act in ("work", "due", "accept"):
                    rates.setdefault((act, held), []).append(workers.rate(act, connections, size.slice))
    return [
        f"Beside an idle snapshot (repeatable read, one statement done, held open), {connections} connections:",
        "",
        *table(
            ("", "without /s", "with it /s", "ratio"),
            *(
                (
                    what,
                    spread(rates[act, False], 0),
                    spread(rates[act, True], 0),
                    spread(ratios(rates[act, True], rates[act, False])),
                )
                for act, what in acts.items()
            ),
        ),
        "",
        f"{size.swept:,} jobs were finished and swept before, and a vacuum has run since: beside the snapshot it"
        f" removes none of their {3 * size.swept:,} dead rows.",
    ]


@contextmanager
def idle_snapshot(dsn: str) -> Iterator[None]:
    with psycopg.connect(dsn) as idle:
        idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        idle.execute("select 1")
        yield


def tables(rates: dict[tuple[str, str, int], list[float]]) -> list[str]:
    lines = []
    for act, title in (
        ("accept", "Accept (job, outbox, event; wake-up sent)"),
        ("work", "Claim to finish of an empty step"),
    ):
        rows: list[tuple[str, ...]] = [
            ("connections", "Leaseway /s", "ms each", "the same statements /s", "ratio", "bare queue /s", "ratio")
        ]
        for connections in CONNECTIONS:
            ours, same, bare = (rates[act, how, connections] for how in ("leaseway", "same", "bare"))
            each = [1000 * connections / rate for rate in ours]
            rows.append(
                (
                    str(connections),
                    spread(ours, 0),
                    spread(each, 1),
                    spread(same, 0),
                    spread(ratios(ours, same)),
                    spread(bare, 0),
                    spread(ratios(ours, bare)),
                )
            )
        lines += [f"{title}:", "", *table(*rows), ""]
    return [
        *lines,
        "Ratios are Leaseway's rate to pgbench's. *The same statements*: those that the engine sends, in the same"
        " transactions, by pgbench. *Bare queue*: one table; accept is one insert, working two updates.",
    ]


def ready(admin: psycopg.Connection, act: str, how: str, number: int) -> None:
    """Empty tables, and jobs to work on."""
    admin.execute(pipeline.CLEAR)
    admin.execute("truncate bare.job restart identity")
    admin.execute("alter sequence bare.message restart")
    if act == "work" and how == "bare":
        admin.execute(
            "insert into bare.job (subject, state) select '{\"name\": \"n\"}', 'queued' from generate_series(1, %s)",
            [number],
        )
    elif act == "work":
        admin.execute(pipeline.jobs(pipeline.QUEUED, number, pipeline.ID))
    admin.execute("vacuum (analyze) engine.job, engine.outbox, engine.job_event, bare.job")
    admin.execute("checkpoint")


def sent(dsn: str, act: str) -> str:
    """What the engine sends for one act, as pgbench's script: recorded, with the values that change as variables."""
    engine = pipeline.engine(dsn)
    recorder = engine.db = Recorder(dsn)
    engine._around = replace(engine._around, db=recorder)
    job = engine.accept(pipeline.EMPTY.name, pipeline.Nothing(name="n")).job.id
    recorder.sent.clear()
    if act == "accept":
        job = accept(engine).id
        begin = ""
    else:
        with redirect_stdout(io.StringIO()):
            worked = engine.work("work", job=job, until=lambda: 900.0)
        assert worked.outcome == "finished"
        begin = (
            "select lpad(to_hex(n), 32, '0')::uuid as id, lpad(to_hex(n), 32, 'f')::uuid as ask"
            " from (select nextval('bare.message') as n) as message \\gset\n"
        )
    lines = []
    with psycopg.connect(dsn, cursor_factory=ClientCursor) as connection:
        for statement, params in recorder.sent:
            changing = {"claim_id": CLAIM, "ask": ASK}
            given = {name: changing.get(name, value) for name, value in params.items()}
            text = connection.cursor().mogrify(statement, given).strip()
            for value, variable in ((str(CLAIM), "claim_id"), (ASK.hex, "ask"), (job.hex, "id")):
                text = text.replace(value, f":{variable}")
            gives = (act == "accept" and "insert into engine.job " in text) or "'claimed'" in text
            lines.append(text + (" \\gset" if gives else ";"))
    engine.db.close()
    return begin + "\n".join(lines) + "\n"


class Recorder(Database):
    """A connection that remembers what was sent over it."""

    def __init__(self, dsn: str):
        super().__init__(dsn)
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def run(self, statement: str, /, **params: Any) -> list[Row]:
        self.sent.append((statement, params))
        return super().run(statement, **params)

    def one(self, statement: str, /, **params: Any) -> Row | None:
        return next(iter(self.run(statement, **params)), None)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        self.sent.append(("begin", {}))
        with super().transaction() as tx:
            yield Recording(tx.connection, self.sent)
        self.sent.append(("commit", {}))


class Recording(Transaction):
    """A transaction of such a connection."""

    def __init__(self, connection: Any, sent: list[tuple[str, dict[str, Any]]]):
        super().__init__(connection)
        self._sent = sent

    def run(self, statement: str, /, **params: Any) -> list[Row]:
        self._sent.append((statement, params))
        return super().run(statement, **params)


def accept(engine: Engine) -> Job | Failure:
    """As the API accepts: in a transaction, then the wake-up is sent."""
    return engine.once(None, lambda tx: engine.accept(pipeline.EMPTY.name, pipeline.Nothing(name="n"), tx=tx).job)


class Workers:
    """Processes with an engine and a connection each, as functions are."""

    def __init__(self, number: int, dsn: str):
        context = get_context("spawn")
        self._pipes: list[Connection] = []
        self._processes = []
        for _ in range(number):
            ours, theirs = context.Pipe()
            process = context.Process(target=_worker, args=(theirs, dsn), daemon=True)
            process.start()
            self._pipes.append(ours)
            self._processes.append(process)
        for pipe in self._pipes:
            pipe.recv()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for pipe in self._pipes:
            pipe.send(None)
        for process in self._processes:
            process.join()

    def rate(self, act: str, number: int, seconds: float) -> float:
        """How many a second so many workers do together."""
        for n, pipe in enumerate(self._pipes[:number]):
            pipe.send((act, n + 1, number, seconds))
        return sum(pipe.recv() for pipe in self._pipes[:number])


def _worker(pipe: Connection, dsn: str) -> None:
    engine = pipeline.engine(dsn)
    engine.db.run("select")
    pipe.send("ready")
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):  # the log is written, nobody reads it
        while asked := pipe.recv():
            act, first, step, seconds = asked
            done, began = 0, time.perf_counter()
            while (took := time.perf_counter() - began) < seconds:
                if act == "accept":
                    accept(engine)
                else:
                    job = UUID(int=first + done * step) if act == "work" else None
                    worked = engine.work("work", job=job, until=lambda: 900.0)
                    assert worked.outcome == "finished", "there were too few jobs"
                done += 1
            pipe.send(done / took)


def pgbench(server: Server, dsn: str, script: Path, connections: int, seconds: float) -> float:
    """Transactions a second, without the time of logging in."""
    # Its least is a second; a smoke test needs less.
    length = ("--transactions", 20) if seconds < 1 else ("--time", round(seconds))
    threads = min(connections, os.cpu_count() or 1)
    done = server.client(
        "pgbench", dsn, "--no-vacuum", "--client", connections, "--jobs", threads, "--file", script, *length
    )
    found = re.search(r"tps = ([0-9.]+)", done.stdout)
    assert found
    assert "number of failed transactions: 0 " in done.stdout, done.stdout
    return float(found[1])
