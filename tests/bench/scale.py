"""What grows: expired leases, schedules, finished rows; each beside the same with few of them."""

import os
import time
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import psycopg
from psycopg.types.json import Jsonb

from chalicelib.engine import Engine

from . import pipeline
from .engine import accept
from .report import Size, ratios, spread, table
from .server import Server

SCHEDULES = """
insert into engine.schedule (key, pipeline, subject, cadence, next_due_at)
select 'schedule ' || g, 'empty', '{"name": "n"}', %(cadence)s
     , clock_timestamp() + case when g <= %(due)s then interval '-1 minute' else interval '1 hour' end
       + g * interval '1 microsecond'
  from generate_series(1, %(number)s) as g
"""
CADENCE = {"every": "day", "at": "02:00", "zone": "Europe/Berlin", "on": None}


def run(size: Size, server: Server, folder: Path) -> list[str]:
    with (
        server.database() as few,
        server.database() as many,
        psycopg.connect(few, autocommit=True) as few_admin,
        psycopg.connect(many, autocommit=True) as admin,
        Path(os.devnull).open("w") as nowhere,
        redirect_stdout(nowhere),  # a line of the log for each event
    ):
        app = server.of_the_app(many)
        both = [(few_admin, server.of_the_app(few)), (admin, app)]
        recovery = recovering(size, both)
        schedules = catching_up(size, admin, app)
        accepts = accepting(size, both)
    return [*recovery, "", *schedules, "", *accepts]


def recovering(size: Size, databases: Sequence[tuple[psycopg.Connection, str]]) -> list[str]:
    """Runs of recovery, as EventBridge would start one each minute, until nothing is overdue.

    Before each, one of the few in a database of their own: the two of a pair meet the same machine.
    """
    engines = [pipeline.engine(app) for _, app in databases]
    few_admin, admin = (admin for admin, _ in databases)

    def a_run(engine: Engine, admin: psycopg.Connection) -> tuple[float, int]:
        before, began = overdue(admin), time.perf_counter()
        engine.recover()
        return time.perf_counter() - began, before - overdue(admin)

    runs: list[list[tuple[float, int]]] = [[], []]
    prepare(admin, pipeline.jobs(pipeline.EXPIRED, size.expired))
    while overdue(admin):
        prepare(few_admin, pipeline.jobs(pipeline.EXPIRED, size.few))
        runs[0].append(a_run(engines[0], few_admin))
        runs[1].append(a_run(engines[1], admin))
    for engine in engines:
        engine.db.close()
    each = [[1000 * seconds / jobs for seconds, jobs in found] for found in runs]
    most = max(jobs for _, jobs in runs[1])
    return [
        "Recovery of expired leases (each back to REQUESTED, its wake-up sent):",
        "",
        *table(
            ("", f"{size.few:,} due", f"{size.expired:,} due", "ratio"),
            ("runs of recovery", *(len(found) for found in runs), ""),
            ("seconds of a run", *(spread(seconds for seconds, _ in found) for found in runs), ""),
            ("ms a job", *(spread(found) for found in each), spread(ratios(each[1], each[0]))),
        ),
        "",
        f"A run recovers for 35 s at most and sends for 15 s. The most in one was {most:,} jobs: as long as no more"
        " fall due in a minute, each is finished within the bound of its deadline.",
    ]


def catching_up(size: Size, admin: psycopg.Connection, app: str) -> list[str]:
    """Catch-up with the cap out of the way, so that all that are due are started; then with the cap as it is."""
    engine = pipeline.engine(app, catch_up_cap=10 * size.few)
    capped = pipeline.engine(app)
    took: dict[int, list[float]] = {size.few: [], size.schedules: []}
    first: dict[int, list[float]] = {size.few: [], size.schedules: []}
    for _ in range(size.runs):
        for number in took:
            for by, results in ((capped, first), (engine, took)):
                prepare(admin, SCHEDULES, cadence=Jsonb(CADENCE), due=size.few, number=number)
                began = time.perf_counter()
                counts = by.catch_up()
                results[number].append(1000 * (time.perf_counter() - began))
                assert counts["started"] == min(size.few, by.settings.catch_up_cap)
    capped.db.close()
    engine.db.close()
    return [
        f"Catch-up with {size.few:,} schedules due:",
        "",
        *table(
            ("ms", f"{size.few:,} schedules", f"{size.schedules:,} schedules", "ratio"),
            (
                f"a run with the cap of {capped.settings.catch_up_cap} active jobs",
                *(spread(found, 0) for found in first.values()),
                spread(ratios(first[size.schedules], first[size.few])),
            ),
            (
                f"a run without a cap: all {size.few:,} started",
                *(spread(found, 0) for found in took.values()),
                spread(ratios(took[size.schedules], took[size.few])),
            ),
        ),
    ]


def accepting(size: Size, databases: Sequence[tuple[psycopg.Connection, str]]) -> list[str]:
    """Accepts one after the other, beside rows that are finished: few and many in turn, each in its own database."""
    engines = [pipeline.engine(app) for _, app in databases]
    numbers = (size.few, size.finished)
    took: tuple[list[float], list[float]] = ([], [])
    for (admin, _), number in zip(databases, numbers, strict=True):
        prepare(admin, pipeline.jobs(pipeline.FINISHED, number))
    for _ in range(size.runs):
        for engine, (admin, _), found in zip(engines, databases, took, strict=True):
            began = time.perf_counter()
            for _ in range(size.accepts):
                accept(engine)
            found.append(1000 * (time.perf_counter() - began) / size.accepts)
            admin.execute("delete from engine.job where finished_at is null")
            admin.execute("vacuum (analyze) engine.job, engine.outbox, engine.job_event")
    for engine in engines:
        engine.db.close()
    return [
        "Accept beside finished rows:",
        "",
        *table(
            ("", *(f"{number:,} finished" for number in numbers), "ratio"),
            ("ms an accept", *(spread(found) for found in took), spread(ratios(took[1], took[0]))),
        ),
    ]


def prepare(admin: psycopg.Connection, statement: str, **parameters: object) -> None:
    """Empty tables with these rows in them, as autovacuum would have left them."""
    admin.execute(pipeline.CLEAR)
    admin.execute(statement, parameters or None)
    admin.execute("vacuum (analyze) engine.job, engine.outbox, engine.job_event, engine.schedule")
    admin.execute("checkpoint")


def overdue(admin: psycopg.Connection) -> int:
    """How many jobs are overdue."""
    found = admin.execute("select count(*) from engine.job where locked_until <= clock_timestamp()").fetchone()
    return int(found[0]) if found else 0
