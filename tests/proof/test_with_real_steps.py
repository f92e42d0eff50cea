"""Crash points outside the engine: each call to a store, a source or a data service, and each statement of a pipeline.

The pipelines are the real ones, with a real PostgreSQL and Oxigraph, S3 in memory and the tests' data service. A
process that has died makes no further call of any kind; the next one goes on; in the end all is as if nothing had been.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple
from uuid import uuid4

import boto3
import httpx
import psycopg
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ReadTimeoutError
from psycopg.conninfo import make_conninfo

from chalicelib import pipelines, telemetry
from chalicelib.catalog.store import FENCE, GraphStore, StoreAway
from chalicelib.cli import restored
from chalicelib.cli.remote import Refused
from chalicelib.datasets import registry
from chalicelib.db import Database, DatabaseAway, Transaction
from chalicelib.engine import LedgerRow, Outage, PermanentFailure
from chalicelib.engine.worker import load
from chalicelib.exports import relation
from chalicelib.exports.data_service import RemoteDataService, ServiceAway
from chalicelib.exports.storage import Store
from chalicelib.pipelines.publication import steps
from chalicelib.pipelines.publication.removal import mend_mixed_graphs
from chalicelib.settings import settings
from tests.conftest import EMPTY, _database
from tests.data_service.server import TOKEN, Kept, serving
from tests.integration.pipelines import loading
from tests.integration.pipelines.conftest import (
    BUCKET,
    Office,
    office,  # noqa: F401 - fixtures
    oxigraph_url,  # noqa: F401
    s3_url,  # noqa: F401
)
from tests.proof import watch
from tests.proof.conftest import LONG
from tests.proof.watch import Violation, Watch, require
from tests.proof.world import MODES, Died, Queues
from tests.writing import IDLE, names

GRAPH = "http://localhost:4000/datasets/trees"
FORMATS = ["csv", "json"]

LOST: dict[str, Callable[[], Exception]] = {
    "S3": lambda: ReadTimeoutError(endpoint_url="http://store.example.org"),
    "data service": lambda: ServiceAway("exports.example.org", "timeout"),
    "triple store": lambda: StoreAway("store.example.org", "timeout"),
    "triple store, by hand": lambda: httpx.ReadTimeout("lost"),
    "source": lambda: psycopg.OperationalError("lost"),
    "database": lambda: DatabaseAway("lost"),
}
"""What the caller sees where a request or a reply is lost."""

SQL = ("source: ", "database: ")

ENGINE = names("chalicelib.engine")
"""Its statements are disturbed in test_crash_points.py."""

PIPELINES = tuple(f"chalicelib.pipelines.{name}" for name in ("export", "load", "publication"))
NAMES = names(*PIPELINES, *(f"chalicelib.{name}" for name in ("cli", "datasets", "exports", "pipelines.refresh")))


def name_of(statement: str) -> str:
    """The file a statement comes from; how it begins, if it was put together at run time."""
    return NAMES.get(statement) or re.match("[a-z ]*", statement.strip().lower())[0].strip()


@pytest.fixture(scope="module")
def session_database_dsn(admin_dsn: str, template: str) -> Iterator[str]:
    """A database of its own: emptying it ends the connections of everybody else's."""
    with _database(admin_dsn, template) as name:
        yield make_conninfo(admin_dsn, dbname=name)


Point = tuple[str, int]
"""A call, and which of its kind: of two pieces of garbage either may be removed first, so a number says nothing."""


class Outside:
    """Counts the calls to the outside, and disturbs one of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.methods: set[str] = set()
        self.turns: dict[str, list[Callable[[], Any] | None]] = {}  # what a story wants of a call, the next times
        self.point: Point | None = None
        self.mode = ""
        self.watching = False
        self.dead = False

    def __call__(self, system: str, name: str, act: Callable[[], Any], line: Any = None) -> Any:
        """Make a call, or not; whoever dies or hears nothing has lost his line, and what wasn't committed on it."""
        if self.dead:
            raise Died
        if not self.watching:
            return act()
        call = f"{system}: {name}"
        self.calls.append(call)
        if (call, self.calls.count(call)) != self.point:
            turns = self.turns.get(call)
            return ((turns.pop(0) if turns else None) or act)()
        if self.mode in ("killed after", "reply lost"):
            act()
        if line:
            line.close()
        if self.mode.startswith("killed"):
            self.die()
        raise LOST[system]()

    def die(self) -> None:
        self.dead = True
        raise Died


class Town:
    """The office on its streets: processes that die, and somebody who watches."""

    def __init__(self, of: Office, outside: Outside, dsn: str, remote: Any):
        self.office = of
        self.outside = outside
        self.remote = remote
        self.watch = Watch(dsn, 20)
        self._dsn = dsn
        self._s3 = boto3.client("s3")  # one for all: making it takes longer than what it is asked

    def reset(self) -> None:
        """As new, for the next run."""
        with psycopg.connect(self._dsn) as admin:
            admin.execute(re.sub("select[^;]*pg_terminate_backend[^;]*;", "", EMPTY))  # ours stay
        self.watch.reset()
        self.office.engine.queues = Queues(self.watch)
        for key in self.files():
            self._s3.delete_object(Bucket=BUCKET, Key=key)
        self.office.store._send(self.office.store._update_url, "application/sparql-update", "DROP ALL")
        self.remote.exports.clear()
        registry.add_connection(self.office.db, "src", "LEASEWAY_SECRET_SRC")
        registry.register_source(self.office.db, "trees", "src", "src.trees", None)
        self.office.define(formats=FORMATS)
        self.outside.calls, self.outside.turns, self.outside.watching, self.outside.dead = [], {}, False, False

    def process(self, act: Callable[[], Any]) -> Any:
        """One invocation, which may die; then everybody looks."""
        try:
            return act()
        except Died:
            return None
        except DatabaseAway:
            require(self.outside.point and self.outside.point[0].startswith("database"), "a database that isn't away")
            return None
        finally:
            self.outside.dead = False
            self.watch.look()

    def ask(self, act: Callable[[], Any]) -> Any:
        """Somebody who asks again where no answer came."""
        return self.process(act) or self.process(act)

    @contextmanager
    def before(self) -> Iterator[None]:
        """What was before a story."""
        self.outside.watching = False
        yield
        self.outside.watching = True

    def until_quiet(self) -> None:
        """The scheduled functions run and workers work until every job has ended and nothing is left to remove."""
        for _ in range(40):
            self.process(self.office.engine.recover)
            self.watch.after_recovery()
            self.process(lambda: self.office.engine.work_on("work", [], lambda: 900.0))
            self.process(lambda: self.office.engine.clean_up(removers=REMOVERS))
            now = self.watch.last
            assert now
            unfinished = now.unfinished()
            if not unfinished and not [row for row in now.ledger.values() if row["status"] == "garbage"]:
                return
            self.office.clock.advance("61 s" if unfinished else "16 min")
        raise AssertionError(f"not quiet: {self.watch.last}")

    def files(self) -> list[str]:
        return sorted(each["Key"] for each in self._s3.list_objects_v2(Bucket=BUCKET).get("Contents", []))

    def check(self) -> None:
        """What must be there, and nothing else."""
        at, fates = self.office, self.watch.seen.values()
        require(all(fate.ended for fate in fates), "a job has not ended")
        versions = [registry.version(at.db, "trees", row["number"]) for row in registry.versions(at.db, "trees")]
        standing = [version for version in versions if not version["withdrawn_at"]]
        files = [file for version in standing for file in version["files"]]
        require(self.files() == sorted(file["key"] for file in files), "files without a version, or the reverse")
        open_uploads = self._s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])
        require(open_uploads == [], "an upload was left open")
        require(self.remote.left() == [], "an export was left at the data service")
        for file in files:
            content = self._s3.get_object(Bucket=BUCKET, Key=file["key"])["Body"].read()
            found = len(content), hashlib.sha256(content).hexdigest()
            require(found == (file["bytes"], file["sha256"]), "a file isn't what its version says:", file)
        held = at.store.held(GRAPH)
        if standing:
            newest = standing[0]
            require(held.triples == newest["triples"], "the catalogue holds another entry")
            require(held.fence is not None and held.fence >= newest["fence"], "an older fence in the catalogue")
        else:
            require(held.triples == 0, "the catalogue holds an entry without a version")
        kept = {row["locator"].get("key") for row in self.watch.last.ledger.values() if row["kind"] == "s3_object"}
        require(kept == {file["key"] for file in files}, "the ledger and the files differ:", kept)
        require(loading.staging_tables(at) == [], "a staging table was left")
        require(at.db.run("select id from dataset.upload") == [], "an upload is known that is gone")
        loads = [id for id, fate in self.watch.seen.items() if fate.pipeline == "load" and fate.ended == "finished"]
        done = at.db.run("select job_id::text as id, rows, inserted, updated, deleted from dataset.load")
        require([tuple(load.values()) for load in done] == [(id, 2, 2, 0, 0) for id in loads], "loads:", done)
        if loads:
            require(loading.Owner(at).rows() == LOADED, "other rows were loaded")


removals: list[Watch] = []


def remove(row: LedgerRow) -> None:
    """The real remover; the watch knows that it was called."""
    [watching] = removals
    watching.removed.setdefault(str(row.id), []).append(watching.snapshot().now)
    load(pipelines.REMOVERS[row.kind])(row)


REMOVERS = dict.fromkeys(pipelines.REMOVERS, f"{__name__}:remove")


NO_CALL = {"Store.of", "Store.presign", "Store.presign_put", "Store.resume_upload"}
"""They ask nobody."""

NOBODYS = {"GraphStore.empty", "GraphStore.ready"}
"""The product doesn't call them."""

METHODS = {
    f"{kind.__name__}.{name}": (kind, name)
    for kind in (Store, GraphStore, RemoteDataService)
    for name in vars(kind)
    if not name.startswith("_")
}


def patches(outside: Outside) -> dict[tuple[Any, str], Any]:
    """What has each call pass the outside."""
    call, send, ask, read = (
        BaseClient._make_api_call,
        GraphStore._send,
        RemoteDataService._ask,
        RemoteDataService.read,
    )
    post, opened, run, transaction = httpx.post, Database._open, Transaction.run, Database.transaction
    execute, rows_of = psycopg.Connection.execute, relation.rows_of
    held: dict[Any, list[str]] = {}

    def through(client: Any, name: str, given: Any) -> Any:
        return outside("S3", name, lambda: call(client, name, given))

    def alive(database: Any) -> Any:
        if outside.dead:
            raise Died
        return opened(database)

    def running(tx: Transaction, statement: str, /, **params: object) -> Any:
        if outside.dead:
            raise Died
        if tx.connection.info.transaction_status != IDLE:
            held.setdefault(tx.connection, []).append(statement)
        if statement in ENGINE:
            return run(tx, statement, **params)
        return outside("database", name_of(statement), lambda: run(tx, statement, **params), tx.connection)

    @contextmanager
    def committing(database: Database) -> Iterator[Transaction]:
        """Its COMMIT is a call, unless it holds nothing but the engine's statements; a COPY isn't seen here."""
        connection = database._open()
        if connection.info.transaction_status != IDLE:
            with transaction(database) as tx:
                yield tx
            return
        held[connection] = []
        inner = transaction(database)
        tx = inner.__enter__()
        try:
            yield tx
            own = [statement for statement in held[connection] if statement not in ENGINE]
            if held[connection] and not own:
                inner.__exit__(None, None, None)
            else:
                name = f"COMMIT of {name_of(own[-1]) if own else 'a COPY'}"
                outside("database", name, lambda: inner.__exit__(None, None, None), connection)
        except BaseException as error:
            if not inner.__exit__(type(error), error, error.__traceback__):
                raise
        finally:
            del held[connection]

    return {
        (BaseClient, "_make_api_call"): through,
        (GraphStore, "_send"): lambda store, url, *rest: outside(
            "triple store", url.rpartition("/")[2], lambda: send(store, url, *rest)
        ),
        (httpx, "post"): lambda url, **rest: outside("triple store, by hand", "query", lambda: post(url, **rest)),
        (RemoteDataService, "_ask"): lambda client, method, path, *rest: outside(
            "data service", method, lambda: ask(client, method, path, *rest)
        ),
        (RemoteDataService, "read"): lambda client, *what: iter(
            outside("data service", "a file", lambda: list(read(client, *what)))
        ),
        (relation._Connection, "execute"): lambda connection, statement, *rest, **how: outside(
            "source", name_of(statement), lambda: execute(connection, statement, *rest, **how), connection
        ),
        (relation, "rows_of"): lambda connection, statement: iter(
            outside("source", "copy", lambda: list(rows_of(connection, statement)), connection)
        ),
        (Database, "_open"): alive,
        (Database, "transaction"): committing,
        (Transaction, "run"): running,
    }


def noting(outside: Outside, label: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The method, noted where its calls are counted."""

    def noted(*args: Any, **options: Any) -> Any:
        if outside.watching:
            outside.methods.add(label)
        return method(*args, **options)

    return noted


@pytest.fixture
def town(office: Office, admin_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:  # noqa: F811
    outside = Outside()
    for (owner, name), patched in patches(outside).items():
        monkeypatch.setattr(owner, name, patched)
    for label, (kind, name) in METHODS.items():
        if label not in NO_CALL:
            monkeypatch.setattr(kind, name, noting(outside, label, getattr(kind, name)))
    monkeypatch.setattr(watch, "RESTORES", watch.RESTORES | {"export"})
    monkeypatch.setattr(telemetry, "log", lambda event, **fields: None)
    monkeypatch.setattr(telemetry, "failure", lambda event, error, **fields: None)
    # The rules of the catalogue touch nothing outside and take half a second; the first report stands for all.
    check, reports = steps.check, []

    def checked(*given: Any) -> Any:
        if not reports:
            reports.append(check(*given))
        return reports[0]

    monkeypatch.setattr(steps, "check", checked)
    with ExitStack() as stack:
        made = Town(office, outside, admin_database_dsn, stack.enter_context(serving()))
        made.remote.patience = 1
        removals.append(made.watch)
        yield made
        outside.watching = outside.dead = False
        removals.clear()
        made.watch.close()


def a_publication(town: Town) -> None:
    """By the built-in data service."""
    town.ask(town.office.publish)


def an_export_that_breaks_off(town: Town) -> None:
    """The source is away with a file half written, which its owner aborts; the next one is killed with one open."""
    town.outside.turns = {"source: copy": [None, hung_up], "S3: UploadPart": [town.outside.die]}
    town.ask(town.office.publish)


def hung_up() -> None:
    raise LOST["source"]()


def a_withdrawal(town: Town) -> None:
    """Out of the catalogue, then the files."""
    with town.before():
        a_publication(town)
        town.until_quiet()
    town.ask(lambda: pipelines.withdraw(town.office.engine, "trees", 1))


def a_load_of_an_uploaded_file(town: Town) -> None:
    """It is read, and removed once its rows are there."""
    with town.before():
        owner = loading.made(town.office)
        upload = owner.upload(b"id;Art;height;planted\n1;Bergahorn;;\n2;Linde;;\n")
    town.ask(lambda: owner.load(upload=upload, key="a key", format="csv", delimiter=";"))


LOADED = [(1, "Bergahorn", None, None), (2, "Linde", None, None)]


def a_publication_by_a_remote_data_service(town: Town) -> None:
    """Its files are copied, then its export is deleted."""
    town.office.point(LEASEWAY_DATA_SERVICE_URL=town.remote.url, LEASEWAY_DATA_SERVICE_TOKEN=TOKEN)
    town.ask(town.office.publish)


def a_failure_after_the_replace(town: Town) -> None:
    """It leaves files, an entry and an export; cleanup puts the catalogue back."""
    with town.before():
        town.office.define(formats=["csv"])
        a_publication_by_a_remote_data_service(town)
        town.until_quiet()
    add = registry.add_version

    def refuse(*_: Any, **__: Any) -> None:
        registry.add_version = add
        raise PermanentFailure("internal_error")

    registry.add_version = refuse
    town.ask(town.office.publish)


def what_no_row_knows(town: Town) -> None:
    """An entry that a late write has mixed is mended by cleanup; files of lost rows are removed after a restore."""
    at = town.office
    with town.before():
        at.define(formats=["csv"])
        a_publication_by_a_remote_data_service(town)
        town.until_quiet()
        mixed = f"INSERT DATA {{ GRAPH <{GRAPH}> {{ <{GRAPH}> <{FENCE}> 0 ; <urn:late> 'late' }} }}"
        at.store._send(at.store._update_url, "application/sparql-update", mixed)
        fence = town.watch.snapshot().fence + 1000
        for key in (f"exports/{uuid4()}/{fence}/trees.csv", "sources/trees/lost.csv"):
            town._s3.put_object(Bucket=BUCKET, Key=key, Body=b"lost")
            town._s3.create_multipart_upload(Bucket=BUCKET, Key=key)
        for export in town.remote.exports.values():
            export.fence = fence + 1

    def mended() -> Any:
        with suppress(Outage):
            return mend_mixed_graphs()

    def removed() -> Any:
        with suppress(Refused):
            restored.refuse_company(at.db)
            restored.lift(settings(), at.db)
            restored.remove(settings(), at.db, restored.look(settings(), at.db))
            return True

    town.ask(mended)
    with town.before():
        require(at.store.mixed() == [], "an entry is still mixed")
    town.ask(removed)
    require(town.watch.snapshot().fence > fence, "a fence that was seen outside is given again")


ENDS = {  # by the remote data service last: it stays where the settings point
    a_publication: ["finished", "finished"],
    an_export_that_breaks_off: ["finished", "finished"],
    a_withdrawal: ["finished", "finished", "finished"],
    a_load_of_an_uploaded_file: ["finished"],
    a_publication_by_a_remote_data_service: ["finished"],
    a_failure_after_the_replace: ["failed", "finished"],
    what_no_row_knows: ["finished"],
}


class Told(NamedTuple):
    """The calls of a story, and how many attempts it took."""

    calls: list[str]
    spent: int


def tell(
    town: Town,
    story: Callable[[Town], None],
    point: Point | None = None,
    mode: str = "",
    undisturbed: Told | None = None,
) -> Told:
    """Tell a story with one of its calls disturbed, to its quiet end."""
    town.reset()
    add = registry.add_version
    outside = town.outside
    outside.point, outside.mode, outside.watching = point, mode, True
    try:
        story(town)
        town.until_quiet()
        outside.watching = False
        town.check()
        ends = sorted(fate.ended or "" for fate in town.watch.seen.values())
        require(ends == ENDS[story], "another end:", ends)
        spent = sum(fate.spent for fate in town.watch.seen.values())
        if undisturbed and point:
            call, count = point
            require(outside.calls.count(call) >= count, "nothing was disturbed")
            # A worker whose step hears nothing of its database ends, as a killed one: that is an attempt.
            ended = mode.startswith("killed") or call.startswith("database")
            require(spent <= undisturbed.spent + ended, "attempts were lost:", spent)
    except BaseException as error:
        error.add_note(f"{story.__name__}, {point}, {mode}" if mode else f"{story.__name__}, with nothing disturbed")
        raise
    finally:
        registry.add_version = add
        outside.watching = False
    return Told(outside.calls, spent)


def points_of(calls: list[str]) -> list[Point]:
    """What is disturbed: each call; of SQL in the short run each statement and each COMMIT once."""
    points = [(call, calls[: n + 1].count(call)) for n, call in enumerate(calls)]
    return [(call, count) for call, count in points if LONG or count == 1 or not call.startswith(SQL)]


@pytest.mark.parametrize("story", ENDS, ids=lambda story: story.__name__)
def test_T27_whatever_call_to_the_outside_goes_wrong(town: Town, figures: dict[str, int], story: Any) -> None:
    undisturbed = tell(town, story)
    points = points_of(undisturbed.calls)
    for number, point in enumerate(points):
        for mode in MODES if LONG else (MODES[number % len(MODES)],):  # half a second each: short, one way a call
            tell(town, story, point, mode, undisturbed)
    figures["crash points"] = len(points) * (len(MODES) if LONG else 1)
    figures["stories"] = 1


ELSEWHERE = {
    "add_upload",  # by a caller: tests/integration/api/test_writes.py
    "get_export",  # the product asks no built-in data service where it stands: its contract's tests do
}


def test_T27_every_call_to_the_outside_and_every_statement_of_a_pipeline_is_in_a_story(town: Town) -> None:
    told = {call.partition(": ")[2] for story in ENDS for call in tell(town, story).calls}

    assert town.outside.methods == METHODS.keys() - NO_CALL - NOBODYS
    assert set(names(*PIPELINES).values()) - told == ELSEWHERE


# Each check fails where it should (test_twins.py demands it)


def changed(town: Town, statement: str) -> None:
    """By hand, in the database."""
    with psycopg.connect(town._dsn) as admin:
        admin.execute(statement)
    town.watch.last = town.watch.snapshot()


def put(town: Town, key: str) -> None:
    town._s3.put_object(Bucket=BUCKET, Key=key, Body=b"another")


def update(town: Town, text: str) -> None:
    town.office.store._send(town.office.store._update_url, "application/sparql-update", text)


def again(town: Town) -> None:
    """A publication that nobody works on."""
    town.office.publish()
    town.watch.look()


LATE = f"INSERT DATA {{ GRAPH <{GRAPH}> {{ <{GRAPH}> <urn:late> 'late' }} }}"
OLDER = f"WITH <{GRAPH}> DELETE {{ ?s <{FENCE}> ?o }} INSERT {{ ?s <{FENCE}> 0 }} WHERE {{ ?s <{FENCE}> ?o }}"
UPLOAD = (
    "insert into dataset.upload (id, dataset_id, owner, bytes, expires_at)"
    " values (gen_random_uuid(), 'trees', '', 1, now())"
)
WRONG: list[tuple[Callable[[Town], None], str, Callable[[Town], Any]]] = [
    (a_publication, "a job has not ended", again),
    (a_publication, "files without a version, or the reverse", lambda town: put(town, "exports/stranger.csv")),
    (
        a_publication,
        "an upload was left open",
        lambda town: town._s3.create_multipart_upload(Bucket=BUCKET, Key="exports/begun.csv"),
    ),
    (
        a_publication,
        "an export was left at the data service",
        lambda town: town.remote.exports.update(left=Kept(1, {})),
    ),
    (a_publication, "a file isn't what its version says:", lambda town: put(town, town.files()[0])),
    (a_publication, "the catalogue holds another entry", lambda town: update(town, LATE)),
    (a_publication, "an older fence in the catalogue", lambda town: update(town, OLDER)),
    (a_withdrawal, "the catalogue holds an entry without a version", lambda town: update(town, LATE)),
    (a_publication, "the ledger and the files differ:", lambda town: changed(town, "delete from engine.ledger")),
    (
        a_load_of_an_uploaded_file,
        "a staging table was left",
        lambda town: changed(town, f"create table staging.load_{'0' * 32}_1 ()"),
    ),
    (a_load_of_an_uploaded_file, "an upload is known that is gone", lambda town: changed(town, UPLOAD)),
    (a_load_of_an_uploaded_file, "loads:", lambda town: changed(town, "update dataset.load set rows = 3")),
    (
        a_load_of_an_uploaded_file,
        "other rows were loaded",
        lambda town: changed(town, "delete from store.trees where id = 1"),
    ),
]


@pytest.mark.parametrize(("story", "says", "wrong"), WRONG, ids=[says for _, says, _ in WRONG])
def test_what_should_not_be_there_in_the_end_is_told(town: Town, story: Any, says: str, wrong: Any) -> None:
    tell(town, story)
    wrong(town)
    with pytest.raises(Violation, match=says):
        town.check()


def test_a_story_that_goes_another_way_is_told(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tell(town, a_publication)
    upload = next(call for call in told.calls if call.startswith("S3"))
    with pytest.raises(Violation, match="nothing was disturbed"):
        tell(town, a_publication, (upload, 99), "request lost", told)
    with pytest.raises(Violation, match="attempts were lost:"):  # as if it had taken one less before
        tell(town, a_publication, (upload, 1), "request lost", Told(told.calls, told.spent - 1))
    monkeypatch.setitem(ENDS, a_publication, ["finished", "failed"])
    with pytest.raises(Violation, match="another end:"):
        tell(town, a_publication)


def test_a_database_that_is_away_unasked_is_told(town: Town) -> None:
    def away() -> None:
        raise LOST["database"]()

    with pytest.raises(Violation, match="a database that isn't away"):
        town.process(away)


def test_what_nobody_mends_after_a_restore_is_told(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setitem(globals(), "mend_mixed_graphs", dict)
        with pytest.raises(Violation, match="an entry is still mixed"):
            tell(town, what_no_row_knows)
    monkeypatch.setattr(restored, "lift", lambda *_: None)
    with pytest.raises(Violation, match="a fence that was seen outside is given again"):
        tell(town, what_no_row_knows)
