"""Two pipelines' own commits, and all before them, in many orders: a load's, and two writers of one catalogue entry.

Their statements are the real ones, as is the triple store; what the orders cut is every statement and every COMMIT.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest

from chalicelib import pipelines, settings
from chalicelib.catalog.store import GraphStore
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.datasets.store import store_columns
from chalicelib.db import Database
from chalicelib.engine import Engine, Idempotency, Job, Leased, LeaseLost, keeping, worker
from chalicelib.engine.model import Counts
from chalicelib.pipelines import entries
from chalicelib.pipelines.export import removal as export_removal
from chalicelib.pipelines.load import LoadDialect
from chalicelib.pipelines.load import steps as load_steps
from chalicelib.pipelines.load.accepting import accept_load
from chalicelib.pipelines.publication import removal
from chalicelib.pipelines.publication import steps as publication_steps
from tests.integration.pipelines.conftest import (
    CATALOG,
    oxigraph_url,  # noqa: F401 - a fixture
)
from tests.integration.pipelines.conftest import DEFINITION as PLAIN
from tests.proof.conftest import LONG
from tests.proof.interleaving import (
    SEED,  # noqa: F401 - the table's seed
    explore,
    nobody_hears_the_same,
    only_known_errors,
    owner_of,
    recover,
)
from tests.proof.watch import require
from tests.proof.world import World

MOST = 2_000 if LONG else 40
"""Orders of two whole acts, which have too many; of what commits at their ends, in the long run, none is left out."""

DEFINITION = Definition.parse(PLAIN | {"formats": ["csv"], "key": ["id"]})
FILE = {
    "name": "trees.csv",
    "format": "csv",
    "media_type": "text/csv",
    "key": "exports/a",
    "bytes": 7,
    "sha256": "0" * 64,
    "etag": '"a"',
}
REMOVERS = {**pipelines.REMOVERS, "export": "tests.proof.test_commits:ignore"}
EMPTY = """
delete from dataset.version;
delete from dataset.load;
delete from engine.idempotency;
delete from engine.job;
delete from dataset.definition;
delete from dataset.dataset;
delete from dataset.source;
drop table if exists store.trees;
"""

Act = Callable[[Engine], Any]


class Office:
    """Trees, with a store of their own, on the world's clock; each act's engine is its own process."""

    orders = 0

    def __init__(self, world: World, store: GraphStore, graph: str):
        self.world = world
        self.store = store
        self.graph = graph
        self.admin = world.watch._connection
        self.here = threading.local()
        self.stale: list[Any] = []
        """Whoever has lost its job and was about to commit what it had written."""
        self.settings = settings.settings()
        self.engine = self.process(Database(world.dsn))

    def process(self, database: Database) -> Engine:
        clock = self.world.clock
        return Engine(
            database,
            pipelines.PIPELINES,
            self.settings,
            self.world.queues,
            monotonic=clock.monotonic,
            sleep=clock.sleep,
        )

    def context(self) -> pipelines.Context:
        engine = getattr(self.here, "engine", self.engine)
        return pipelines.Context(self.settings, engine.db, engine)

    def acting(self, act: Act) -> Callable[[Database], Any]:
        def on(database: Database) -> Any:
            self.here.engine = self.process(database)
            return act(self.here.engine)

        return on

    def asks(self) -> None:
        """What an act asks of the triple store no lock tells."""
        if engine := getattr(self.here, "engine", None):
            engine.db.actor.asked.add("the triple store")

    def holding(self, leased: Leased[Any], tx: Any) -> None:
        """Before the COMMIT of an act's transaction somebody looks whose job it is; a step would swallow an error."""
        if hasattr(tx, "before_commit"):
            owned = partial(owner_of, self.world, leased.id)
            tx.before_commit.append(lambda: self.stale.append(leased.id) if owned() != leased.claim_id else None)

    def reset(self) -> None:
        self.stale.clear()
        self.world.reset()
        self.admin.execute(EMPTY)
        self.store.replace(self.graph, b"", self.engine.fence(self.engine.db))
        with self.engine.db.transaction() as tx:
            registry.register_store(tx, "trees", "trees")
            registry.put_definition(tx, "trees", DEFINITION)

    def until_quiet(self) -> bool:
        """Everybody comes once a minute, until nothing is left to do: after every tenth order, for it takes longest."""
        self.orders += 1
        if self.orders % 10 != 1:
            return False
        for _ in range(60):
            recovered = self.engine.recover()
            self.engine.work_on("work", [], lambda: 900)
            only_known_errors([recovered, self.engine.clean_up(removers=REMOVERS)])
            now = self.world.watch.snapshot()
            if not now.unfinished() and not [row for row in now.ledger.values() if row["status"] == "garbage"]:
                return True
            self.world.clock.advance("61 s" if now.unfinished() else "16 min")
        raise AssertionError("not quiet")

    def claim(self, job: UUID) -> Leased[Any]:
        leased = self.engine.claim("work", job=job, ask=uuid4(), lease=timedelta(seconds=60))
        assert leased
        return leased

    # Loads

    def load(self, *rows: str) -> UUID:
        key = Idempotency(principal=b"p", route="POST /loads", key=uuid4().bytes, body=b"b")
        body = "\n".join(("id,name", *rows)).encode()
        job = accept_load(self.engine, "trees", "owner", key, mode="upsert", dialect=LoadDialect(), body=body)
        assert isinstance(job, Job)
        return job.id

    def rows(self) -> list[dict[str, Any]]:
        if self.admin.execute("select to_regclass('store.trees') as found").fetchone()["found"] is None:
            return []
        return self.admin.execute("select id, name from store.trees order by id").fetchall()

    def record(self, job: UUID) -> dict[str, Any] | None:
        return self.admin.execute("select * from dataset.load where job_id = %s", [job]).fetchone()

    # Publications

    def ready(self) -> UUID:
        """A publication whose files are there: its entry is to be written next."""
        job = pipelines.publish(self.engine, "trees").id
        self.advance(self.claim(job), hand_over=True)
        self.world.watch.look()
        return job

    def advance(self, leased: Leased[Any], *, hand_over: bool) -> Leased[Any]:
        """As if its files were there."""
        leased.advance("PERSIST_DATA", [], {"files": [FILE], "records": 7}, hand_over=hand_over)
        return leased

    def entry(self) -> tuple[int, int | None]:
        """Triples of the entry, and its fence."""
        held = self.store.held(self.graph)
        return held.triples, held.fence

    def current(self) -> dict[str, Any] | None:
        return self.admin.execute(
            "select version.* from dataset.version join dataset.dataset on id = dataset_id and number = current_version"
        ).fetchone()


def ignore(row: object) -> None:
    """No data service was asked for anything."""


@pytest.fixture
def oxigraph(oxigraph_url: str) -> GraphStore:  # noqa: F811
    return GraphStore(f"{oxigraph_url}/update", f"{oxigraph_url}/query")


@pytest.fixture
def office(world: World, oxigraph: GraphStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    for name, value in {
        **CATALOG,
        "LEASEWAY_HASH_KEY": "x" * 32,
        "DATABASE_URL": world.dsn,
        "PUBLIC_URL": world.settings.public_url,
    }.items():
        monkeypatch.setenv(name, value)
    settings.settings.cache_clear()
    made = Office(world, oxigraph, f"{world.settings.public_url}/datasets/trees")
    for module in (load_steps, publication_steps, entries, removal, export_removal):
        monkeypatch.setattr(module, "context", made.context)
    for module in (entries, removal):
        monkeypatch.setattr(module, "graph_store", lambda: oxigraph)
    monkeypatch.setattr(publication_steps, "_see_files", lambda job: None)  # there is no object storage here
    send = oxigraph._send
    monkeypatch.setattr(oxigraph, "_send", lambda *request: made.asks() or send(*request))
    hold = Leased.hold
    monkeypatch.setattr(Leased, "hold", lambda leased, tx: hold(leased, tx) or made.holding(leased, tx))
    made.reset()
    yield made
    made.admin.execute(EMPTY)
    made.engine.db.close()
    settings.settings.cache_clear()


def work_on(job: UUID) -> Act:
    return lambda engine: engine.work("work", job=job, until=lambda: 900.0).outcome


def go_on(leased: Leased[Any]) -> Act:
    """Who has the job already does its step."""

    def act(engine: Engine) -> Any:
        leased._around = engine._around
        return worker._run(leased, pipelines.PIPELINES[leased.pipeline], worker.minimum(engine._around))

    return act


def in_many_orders(
    office: Office,
    before: Callable[[], dict[str, Act]],
    after: Callable[[dict[str, Any]], None],
    *rivals: str,
    most: int | None = MOST,
) -> int:
    """Every order is judged; over all of them none of the rivals may hear the same, or they have never met."""
    heard: dict[str, set[Any]] = {rival: set() for rival in rivals}

    def prepare() -> dict[str, Callable[[Database], Any]]:
        office.reset()
        acts = before()
        office.world.watch.look()
        return {name: office.acting(act) for name, act in acts.items()}

    def judge(replies: dict[str, Any]) -> None:
        office.world.watch.look()
        only_known_errors(replies.values())
        require(not office.stale, "a stale owner was about to commit:", office.stale)
        after(replies)
        for rival in rivals:
            heard[rival].add(replies[rival])

    count = explore(office.world, prepare, judge, most=most)
    nobody_hears_the_same(heard)
    return count


@pytest.mark.parametrize("act", ["its commit", "all of it"])
def test_a_load_s_rows_are_there_exactly_when_its_record_and_its_end_are(office, figures, act):
    """Load commit / recover: the worker is slow, its lease ends, another one takes over."""
    seen = SimpleNamespace(job=None, staged=ExitStack())

    def commit() -> Act:
        """All of it is in the staging table."""
        leased, columns = office.claim(seen.job), store_columns(DEFINITION)
        table = seen.staged.enter_context(load_steps._staged(leased, office.engine.db, columns))
        rows = load_steps._fill(leased, office.engine.db, table, iter([(1, "oak"), (2, "elm")]))

        def write(engine: Engine) -> str:
            leased._around = engine._around
            try:
                load_steps._write(leased, leased.request, DEFINITION, table, rows)
            except LeaseLost:
                return "lost"
            return "finished"

        return write

    def before() -> dict[str, Act]:
        seen.staged.close()
        seen.job = office.load("1,oak", "2,elm")
        load = commit() if act == "its commit" else work_on(seen.job)

        def passes(engine: Engine) -> None:
            office.world.clock.advance("3 min")

        return {"load": load, "recover": recover, "time passes": passes}

    def whole() -> bool:
        rows, record, job = office.rows(), office.record(seen.job), office.engine.job(seen.job)
        require(job, "the load was given up:", seen.job)
        done = job.status == "succeeded"
        wanted = ([{"id": 1, "name": "oak"}, {"id": 2, "name": "elm"}], 2) if done else ([], None)
        found = rows, record and record["inserted"]
        require(found == wanted, "rows, record and end don't go together:", found, job)
        return done

    def after(replies: dict[str, Any]) -> None:
        require(replies["load"] == ("finished" if whole() else "lost"), "the worker was told otherwise:", replies)
        if office.until_quiet():
            whole()

    most = None if act == "its commit" and LONG else MOST
    figures["orders"] = in_many_orders(office, before, after, "load", most=most)
    figures["pairs"] = 1
    seen.staged.close()


def test_loads_of_one_dataset_are_done_one_after_the_other_whoever_works(office, figures):
    """Two loads of the same row, two workers: the later one's value stands, each is recorded once."""
    seen = SimpleNamespace(jobs=[])

    def before() -> dict[str, Act]:
        seen.jobs = [office.load("1,oak"), office.load("1,elm")]
        return {"one": work_on(seen.jobs[1]), "other": work_on(seen.jobs[0])}

    def after(replies: dict[str, Any]) -> None:
        judge(*sorted(replies.values()))
        if office.until_quiet():
            judge("finished", "finished")

    def judge(*told: str) -> None:
        """So many of them are done: the earlier one first."""
        records = [record and (record["inserted"], record["updated"]) for record in map(office.record, seen.jobs)]
        found = office.rows(), records
        wanted = {
            ("finished", "nothing"): ([{"id": 1, "name": "oak"}], [(1, 0), None]),
            ("finished", "finished"): ([{"id": 1, "name": "elm"}], [(1, 0), (0, 1)]),
        }
        require(found == wanted.get(told), "done in another order, twice, or not as told:", found, told)

    figures["orders"] = in_many_orders(office, before, after, "one", "other")
    figures["pairs"] = 1


def consistent(office: Office) -> None:
    """The entry is the current version's, or empty where there is none; nothing of anybody else's is in it."""
    triples, _ = office.entry()
    current = office.current()
    require(triples == (current["triples"] if current else 0), "a mixed or foreign entry:", triples, current)


def test_two_writers_of_one_entry_a_slow_owner_and_the_next_one(office, figures):
    """A publication whose lease ends while it writes; recovery gives it to another worker, who writes, too."""
    seen = SimpleNamespace(job=None)

    def before() -> dict[str, Act]:
        seen.job = office.ready()
        slow = office.claim(seen.job)

        def next_owner(engine: Engine) -> Any:
            office.world.clock.advance("3 min")
            recover(engine)
            office.world.clock.advance("15 s")
            leased = engine.claim("work", job=seen.job, ask=uuid4(), lease=timedelta(seconds=60))
            return go_on(office.advance(leased, hand_over=False))(engine) if leased else "too late"

        return {"slow": go_on(slow), "next": next_owner}

    def after(replies: dict[str, Any]) -> None:
        numbers = [row["number"] for row in office.admin.execute("select number from dataset.version").fetchall()]
        done = {
            ("finished", "too late"): [1],
            ("lost", "finished"): [1],
            ("lost", "too late"): [],  # recovery came by while the slow one was at its job's row
        }
        ended = replies["slow"], replies["next"]
        require(done.get(ended) == numbers, "a version twice, or none:", numbers, ended)
        if numbers:
            consistent(office)
        office.engine.cancel(seen.job)  # back in GET_DATA it would need a data service
        if office.until_quiet():
            consistent(office)

    most = None if LONG else 2 * MOST  # the slow one is through first in few of them
    figures["orders"] = in_many_orders(office, before, after, "slow", "next", most=most)
    figures["pairs"] = 1


def test_two_writers_of_one_entry_a_publication_and_cleanup(office, figures):
    """Cleanup puts back what a failed publication left, while the next one writes."""
    seen = SimpleNamespace(job=None)

    def before() -> dict[str, Act]:
        leased = office.claim(office.ready())
        leased.note("graph", {"graph": office.graph, "dataset": "trees"})
        office.store.replace(office.graph, b"<urn:a> <urn:b> <urn:c> .\n", leased.claim_id)
        leased.fail("triple_store_mismatch", {})
        office.world.watch.look()
        seen.job = office.ready()
        return {
            "publication": go_on(office.claim(seen.job)),
            "cleanup": clean_up,
        }

    def clean_up(engine: Engine) -> dict[str, int]:
        counts = Counts()
        keeping.clean_up(engine._around, REMOVERS, counts)
        return counts.by

    def after(replies: dict[str, Any]) -> None:
        require(replies["publication"] in ("finished", "waiting"), "the publication has ended otherwise:", replies)
        if replies["publication"] == "finished":
            published()
        if office.until_quiet():
            published()

    def published() -> None:
        require(office.current(), "the publication was lost:", seen.job)
        consistent(office)

    figures["orders"] = in_many_orders(office, before, after, "publication", most=None if LONG else MOST)
    figures["pairs"] = 1
