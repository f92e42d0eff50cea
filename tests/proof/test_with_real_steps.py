"""Crash points outside the database: every call to object storage, data service and triple store goes wrong once.

The pipelines are the real ones, with a real PostgreSQL and Oxigraph, S3 in memory and the tests' data service. A
process that has died makes no further call of any kind; the next one goes on; in the end all is as if nothing had been.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import boto3
import psycopg
import pytest
from botocore.client import BaseClient
from botocore.exceptions import ReadTimeoutError
from psycopg.conninfo import make_conninfo

from chalicelib import pipelines, telemetry
from chalicelib.catalog.store import GraphStore, StoreAway
from chalicelib.datasets import registry
from chalicelib.db import Database
from chalicelib.engine import LedgerRow, PermanentFailure
from chalicelib.engine.worker import load
from chalicelib.exports.data_service import RemoteDataService, ServiceAway
from chalicelib.pipelines.publication import steps
from tests.conftest import EMPTY, _database
from tests.data_service.server import TOKEN, serving
from tests.integration.pipelines.conftest import (
    BUCKET,
    Office,
    office,  # noqa: F401 - fixtures
    oxigraph_url,  # noqa: F401
    s3_url,  # noqa: F401
)
from tests.proof import watch
from tests.proof.conftest import LONG
from tests.proof.watch import Watch, require
from tests.proof.world import MODES, Died, Queues

GRAPH = "http://localhost:4000/datasets/trees"
FORMATS = ["csv", "json"]

LOST: dict[str, Callable[[], Exception]] = {
    "S3": lambda: ReadTimeoutError(endpoint_url="http://store.example.org"),
    "data service": lambda: ServiceAway("exports.example.org", "timeout"),
    "triple store": lambda: StoreAway("store.example.org", "timeout"),
}
"""What the caller sees where a request or a reply is lost."""


@pytest.fixture(scope="module")
def session_database_dsn(admin_dsn: str, template: str) -> Iterator[str]:
    """A database of its own: emptying it ends the connections of everybody else's."""
    with _database(admin_dsn, template) as name:
        yield make_conninfo(admin_dsn, dbname=name)


class Outside:
    """Counts the calls to the outside, and disturbs one of them."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.number: int | None = None
        self.mode = ""
        self.watching = False
        self.dead = False

    def __call__(self, system: str, name: str, act: Callable[[], Any]) -> Any:
        if self.dead:
            raise Died
        if not self.watching:
            return act()
        self.calls.append(f"{system}: {name}")
        if len(self.calls) - 1 != self.number:
            return act()
        if self.mode in ("killed after", "reply lost"):
            act()
        if self.mode.startswith("killed"):
            self.dead = True
            raise Died
        raise LOST[system]()


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
        self.outside.calls, self.outside.watching, self.outside.dead = [], False, False

    def process(self, act: Callable[[], Any]) -> Any:
        """One invocation, which may die; then everybody looks."""
        try:
            return act()
        except Died:
            return None
        finally:
            self.outside.dead = False
            self.watch.look()

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


removals: list[Watch] = []


def remove(row: LedgerRow) -> None:
    """The real remover; the watch knows that it was called."""
    [watching] = removals
    watching.removed.setdefault(str(row.id), []).append(watching.snapshot().now)
    load(pipelines.REMOVERS[row.kind])(row)


REMOVERS = dict.fromkeys(pipelines.REMOVERS, f"{__name__}:remove")


@pytest.fixture
def town(office: Office, admin_database_dsn: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Town]:  # noqa: F811
    outside = Outside()
    call, send, ask, read = (
        BaseClient._make_api_call,
        GraphStore._send,
        RemoteDataService._ask,
        RemoteDataService.read,
    )
    opened = Database._open

    def through(client: Any, name: str, given: Any) -> Any:
        return outside("S3", name, lambda: call(client, name, given))

    def alive(database: Any) -> Any:
        if outside.dead:
            raise Died
        return opened(database)

    patches = {
        (BaseClient, "_make_api_call"): through,
        (GraphStore, "_send"): lambda store, url, *rest: outside(
            "triple store", url.rpartition("/")[2], lambda: send(store, url, *rest)
        ),
        (RemoteDataService, "_ask"): lambda client, method, path, *rest: outside(
            "data service", method, lambda: ask(client, method, path, *rest)
        ),
        (RemoteDataService, "read"): lambda client, *what: iter(
            outside("data service", "a file", lambda: list(read(client, *what)))
        ),
        (Database, "_open"): alive,
    }
    for (owner, name), patched in patches.items():
        monkeypatch.setattr(owner, name, patched)
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
    town.office.publish()


def a_publication_by_a_remote_data_service(town: Town) -> None:
    """Its files are copied, then its export is deleted."""
    town.office.point(LEASEWAY_DATA_SERVICE_URL=town.remote.url, LEASEWAY_DATA_SERVICE_TOKEN=TOKEN)
    town.office.publish()


def a_failure_after_the_replace(town: Town) -> None:
    """It leaves files, an entry and an export; cleanup puts the catalogue back."""
    town.outside.watching = False
    a_publication_by_a_remote_data_service(town)
    town.until_quiet()
    town.outside.watching = True
    add = registry.add_version

    def refuse(*_: Any, **__: Any) -> None:
        registry.add_version = add
        raise PermanentFailure("internal_error")

    registry.add_version = refuse
    town.office.publish()


def a_withdrawal(town: Town) -> None:
    """Out of the catalogue, then the files."""
    town.outside.watching = False
    a_publication(town)
    town.until_quiet()
    town.outside.watching = True
    pipelines.withdraw(town.office.engine, "trees", 1)


STORIES = (a_publication, a_publication_by_a_remote_data_service, a_failure_after_the_replace, a_withdrawal)
ENDS = {
    a_publication: ["finished", "finished"],
    a_publication_by_a_remote_data_service: ["finished"],
    a_failure_after_the_replace: ["failed", "finished"],
    a_withdrawal: ["finished", "finished", "finished"],
}


def tell(town: Town, story: Callable[[Town], None], number: int | None = None, mode: str = "") -> list[str]:
    """Tell a story with its n-th call disturbed, to its quiet end."""
    town.reset()
    add = registry.add_version
    outside = town.outside
    outside.number, outside.mode, outside.watching = number, mode, True
    try:
        story(town)
        town.until_quiet()
        outside.watching = False
        town.check()
        ends = sorted(fate.ended or "" for fate in town.watch.seen.values())
        require(ends == ENDS[story], "another end:", ends)
        attempts = max(fate.spent for fate in town.watch.seen.values())
        require(mode.startswith("killed") or attempts == 1, "a lost message has cost an attempt")
    except BaseException as error:
        error.add_note(f"{story.__name__}, call {number} ({outside.calls[-1:]}), {mode}")
        raise
    finally:
        registry.add_version = add
        outside.watching = False
    return outside.calls


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_whatever_call_to_the_outside_goes_wrong(town: Town, figures: dict[str, int], story: Any) -> None:
    calls = tell(town, story)
    for number in range(len(calls)):
        for mode in MODES if LONG else (MODES[number % len(MODES)],):  # a second each: in the short run one way a call
            tell(town, story, number, mode)
    figures["crash points"] = len(calls) * (len(MODES) if LONG else 1)
    figures["stories"] = 1
