"""Ten loads at once on one dataset, their workers killed again and again: each is done once, in order of acceptance."""

import random
from concurrent.futures import ThreadPoolExecutor
from threading import Lock, local

import pytest

from chalicelib import pipelines, settings
from chalicelib.db import Database
from chalicelib.engine import Engine
from chalicelib.pipelines.export import removal as export_removal
from chalicelib.pipelines.export import steps as export_steps
from chalicelib.pipelines.load import removal, steps
from tests.integration.pipelines.conftest import Killed
from tests.integration.pipelines.loading import made, staging_tables, uploads

LOADS = 10
PLACES = ("_staged", "_fill", "_write", "prepare_store", "_merged")
DEATHS_OF_ONE = 2
"""A third would spend its last attempt."""


class Reaper:
    """Kills a worker before or after what it does, at random, no job more than twice."""

    def __init__(self, seed: int):
        self._random = random.Random(seed)
        self._lock = Lock()
        self._of = local()
        self.deaths: dict[str, int] = {}

    def at_work(self, job) -> None:
        self._of.job = str(job.id)

    def strike(self) -> None:
        with self._lock:
            job = self._of.job
            if self.deaths.get(job, 0) < DEATHS_OF_ONE and self._random.random() < 0.25:
                self.deaths[job] = self.deaths.get(job, 0) + 1
                raise Killed


@pytest.mark.parametrize("seed", range(3))
def test_ten_loads_race_on_one_dataset_under_kills(office, dsn, monkeypatch, seed):
    owner = made(office)
    reaper = Reaper(seed)
    mine = local()

    def context():
        """Each worker is a process of its own: it has its own connection."""
        if not hasattr(mine, "context"):
            db = Database(dsn)
            engine = Engine(
                db,
                pipelines.PIPELINES,
                settings.settings(),
                office.queues,
                monotonic=office.clock.monotonic,
                sleep=office.clock.sleep,
            )
            mine.context = pipelines.Context(settings.settings(), db, engine)
        return mine.context

    for module in (steps, removal, export_steps, export_removal):
        monkeypatch.setattr(module, "context", context)
    for place in PLACES:
        _deadly(monkeypatch, place, reaper)
    alive = steps.load

    def load(job):
        reaper.at_work(job)
        return alive(job)

    monkeypatch.setattr(steps, "load", load)
    monkeypatch.setattr(steps, "drop", lambda *_: None)  # a killed process drops nothing

    sent = {n: owner.upload(f"id,Art\n0,load {n}\n{n + 1},load {n}\n".encode()) for n in range(0, LOADS, 2)}

    def push(n: int):
        rows = None if n in sent else [{"id": 0, "Art": f"load {n}"}, {"id": n + 1, "Art": f"load {n}"}]
        return owner.load(rows, key=f"key {n}", engine=context().engine, upload=sent.get(n))

    def work(_: int) -> None:
        try:
            context().engine.work_on("work", [], lambda: 900.0)
        except Killed:
            return

    with ThreadPoolExecutor(4) as threads:
        jobs = list(threads.map(push, range(LOADS)))
        for _ in range(80):
            list(threads.map(work, range(4)))
            office.clock.advance("1 min")
            office.engine.recover()
            if not office.db.run("select id from engine.job where finished_at is null"):
                break
        list(threads.map(lambda _: context().db.close(), range(4)))

    assert reaper.deaths
    assert [office.engine.status(job).status for job in jobs] == ["succeeded"] * LOADS
    order = office.db.run("select id, subject from engine.job order by order_number")
    ended = office.db.run("select job_id from engine.job_event where kind = 'finished' order by id")
    assert [row["job_id"] for row in ended] == [row["id"] for row in order]
    done = [owner.done(row["id"]) for row in order]
    assert done == [(2, 2, 0, 0), *[(2, 1, 1, 0)] * (LOADS - 1)]  # the first row is each one's in its turn
    rows = {row[0]: row[1] for row in owner.rows()}
    assert rows == {0: f"load {jobs.index(order[-1]['id'])}"} | {n + 1: f"load {n}" for n in range(LOADS)}
    office.run(40)
    assert (staging_tables(office), uploads(office)) == ([], [])
    assert office.db.run("select id from dataset.upload") == []


def _deadly(monkeypatch, place, reaper) -> None:
    alive = getattr(steps, place)

    def deadly(*args, **kwargs):
        reaper.strike()
        made = alive(*args, **kwargs)
        reaper.strike()
        return made

    monkeypatch.setattr(steps, place, deadly)
