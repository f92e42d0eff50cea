"""Ticks that EventBridge delivers again: the scheduled functions as they are, with real files and graphs.

What the engine does of each stands in tests/integration/engine/test_ticks.py.
"""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from datetime import timedelta
from threading import Barrier, local
from types import SimpleNamespace
from uuid import uuid4

import pytest
from chalice.app import SQSEvent

from chalicelib import pipelines, settings
from chalicelib.catalog.store import GraphStore
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Database
from chalicelib.engine import Cadence, Engine
from chalicelib.exports.storage import Store
from chalicelib.pipelines import entries, functions
from chalicelib.pipelines.export import removal as export_removal
from chalicelib.pipelines.export import steps as export_steps
from chalicelib.pipelines.publication import removal
from chalicelib.pipelines.publication import steps as publication_steps
from tests.integration.pipelines.conftest import DEFINITION
from tests.integration.pipelines.test_publication import kill_at_finish, triples

LAKES, STRANGERS = "http://localhost:4000/datasets/lakes", "urn:another"
HOW = {"five times in a row": (1, 5), "twice at once": (2, 1)}
"""Processes, and ticks of each."""

TICKS = {
    "worker": lambda event: functions.work("work", minute_tick()),
    "fetcher": lambda event: functions.work("fetch", minute_tick()),
    "recovery": functions.recover,
    "catch-up": functions.catch_up,
}

# What one tick does to the scene: events by kind.
ONE = {
    "worker": {"claimed": 2, "accepted": 1, "waiting": 1, "finished": 1},
    "fetcher": {},  # no pipeline reaches the internet yet, and what is due is another queue's
    "recovery": {"worker_lost": 1},
    "catch-up": {"accepted": 1},
}


def minute_tick():
    """What the rule sends to workers."""
    return SQSEvent({"Records": []}, SimpleNamespace(get_remaining_time_in_millis=lambda: 900_000))


@pytest.fixture
def tick(office, dsn, monkeypatch):
    """Has a function run as often as is said, in processes of their own; what was logged."""
    mine, logged = local(), []
    monkeypatch.setattr(functions.telemetry, "log", lambda event, **fields: logged.append((event, fields)))

    def run(function, how):
        processes, times = HOW[how]
        begin = Barrier(processes, timeout=30)
        event = SimpleNamespace(to_dict=lambda: {"time": office.clock.now().isoformat()})
        for module in (functions, entries, export_removal, export_steps, publication_steps, removal):
            monkeypatch.setattr(module, "context", lambda: mine.context)

        def process(_):
            db, at = Database(dsn), settings.settings()
            mine.context = pipelines.Context(at, db, Engine(db, pipelines.PIPELINES, at, office.queues))
            begin.wait()
            for _ in range(times):
                function(event)
            db.close()

        with ThreadPoolExecutor(processes) as pool:
            list(pool.map(process, range(processes)))
        return logged

    return run


def catalogue(office):
    return triples(office), office.store.held(LAKES).triples


@pytest.fixture
def lakes(office):
    """Another dataset, and the versions of both."""
    with office.db.transaction() as tx:
        registry.put_definition(tx, "lakes", Definition.parse(deepcopy(DEFINITION)))
    office.publish()
    pipelines.publish(office.engine, "lakes")
    office.run(2)


@pytest.mark.parametrize("how", HOW)
def test_T17_cleanup_that_comes_again_removes_and_mends_as_one(office, lakes, tick, oxigraph_url, monkeypatch, how):
    """A publication has failed after its replace, and a late write stands in the other dataset's graph."""
    right, files = catalogue(office), office.files()
    kill_at_finish(monkeypatch, times=3)
    job = office.publish()
    office.run(10, clean_up=False)
    assert office.engine.status(job).code == "attempts_exhausted"
    left = set(office.files()) - set(files)
    late = f'<{LAKES}> <urn:leaseway:fence> 1 . <{LAKES}> <http://purl.org/dc/terms/title> "Late"'
    update = f"GRAPH <{LAKES}> {{ {late} }} GRAPH <{STRANGERS}> {{ <{STRANGERS}> <urn:leaseway:fence> 1, 2 }}"
    office.store._send(f"{oxigraph_url}/update", "application/sparql-update", f"INSERT DATA {{ {update} }}")
    assert sorted(office.store.mixed()) == [LAKES, STRANGERS]
    assert [now != then for now, then in zip(catalogue(office), right, strict=True)] == [True, True]
    assert len(left) == 3
    deleted, delete, mixed, both = Counter(), Store.delete, GraphStore.mixed, Barrier(HOW[how][0], timeout=30)

    def counted(store, key):
        deleted[key] += 1
        delete(store, key)

    def seen(store):
        """Each process knows of the graph before one mends it."""
        found = mixed(store)
        both.wait()
        return found

    with monkeypatch.context() as patch:
        patch.setattr(Store, "delete", counted)
        patch.setattr(GraphStore, "mixed", seen)
        logged = tick(functions.clean_up, how)

    assert (catalogue(office), office.files()) == (right, files)
    assert office.store.mixed() == [STRANGERS]
    assert deleted == Counter(left)
    garbage = office.db.run("select removed_at from engine.ledger where status = 'garbage'")
    done = Counter()
    for event, fields in logged:
        done.update(fields if event == "cleanup" else {})
    assert done["removed"] == len(garbage) == sum(row["removed_at"] is not None for row in garbage)
    assert set(+done) <= {"removed", "mended_graphs", "unmended_graphs"}
    # Of two that have seen it one writes after the other, or finds the other's entry there under the newer fence.
    assert done["mended_graphs"] + done["unmended_graphs"] == HOW[how][0]
    assert done["mended_graphs"] >= 1


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", TICKS)
def test_T17_a_tick_of_another_function_that_comes_again_has_the_effect_of_one(office, lakes, queues, tick, name, how):
    """One job is due, another one's worker is lost, a third one's schedule has been missed for days."""
    office.engine.set_schedule("dataset:lakes", "publication", {"dataset": "lakes"}, Cadence("day", "02:00", "UTC"))
    with office.db.transaction() as tx:
        registry.put_definition(tx, "birds", Definition.parse(deepcopy(DEFINITION)))
    office.clock.advance("2 days")
    lost = pipelines.publish(office.engine, "birds").id
    office.engine.claim("work", job=lost, ask=uuid4(), lease=timedelta(seconds=60))
    office.clock.advance("2 min")
    office.publish()
    queues.sent.clear()
    [before] = office.db.run("select max(id) as id from engine.job_event")
    tick(TICKS[name], how)
    events = office.db.run("select kind from engine.job_event where id > %(id)s", **before)
    assert dict(Counter(row["kind"] for row in events)) == ONE[name]
    assert len(set(queues.sent)) == len(queues.sent)


def test_T17_a_graph_that_another_cleanup_has_mended_meanwhile_is_not_told_as_unmended(
    office, lakes, oxigraph_url, monkeypatch
):
    """One takes its fence; before it has the lock another one has seen the graph, and written under a newer."""
    late = f"GRAPH <{LAKES}> {{ <{LAKES}> <urn:leaseway:fence> 1 }}"
    office.store._send(f"{oxigraph_url}/update", "application/sparql-update", f"INSERT DATA {{ {late} }}")
    fence, others = Engine.fence, []

    def overtaken(engine, tx):
        mine = fence(engine, tx)
        if not others:
            others.append(mine)
            removal.mend_mixed_graphs()
        return mine

    monkeypatch.setattr(Engine, "fence", overtaken)
    counts = removal.mend_mixed_graphs()

    assert office.store.mixed() == []
    assert counts["unmended_graphs"] == 0


def test_a_graph_whose_fence_this_database_has_not_given_yet_is_told_as_unmended(office, lakes, oxigraph_url):
    """The database is of a time before; `leaseway restored` has not been there."""
    fence = office.engine.fence(office.db) + 1_000
    late = f"GRAPH <{LAKES}> {{ <{LAKES}> <urn:leaseway:fence> {fence} }}"
    office.store._send(f"{oxigraph_url}/update", "application/sparql-update", f"INSERT DATA {{ {late} }}")

    assert removal.mend_mixed_graphs() == {"mended_graphs": 0, "unmended_graphs": 1}
