"""T27: whatever is asked for from outside, each of its writes and COMMITs goes wrong once, and it is asked for again.

The server refuses for a conflict (40001, 40P01), or the connection is gone before or after. Each story is a request or
a command; asked again where it went wrong, it has done what it does undisturbed, once.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from chalicelib.api import refreshes
from chalicelib.cli import leaseway
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from tests.conftest import EMPTY
from tests.writing import PACKAGES, Fault, disturbing, modes, writing_statements

from .seeding import DEFINITION, call, seed

CADENCE = {"every": "day", "at": "03:00", "zone": "Europe/Berlin"}
CATALOG = {
    "title": {"en": "Data"},
    "description": {"en": "All of it."},
    "publisher": {"name": {"en": "Office"}, "iri": "https://office.example.org/"},
    "licence": "CC0",
    "homepage": "https://office.example.org/data",
}
MANIFEST = """
contracts:
  - {name: a, source: flights, target: {connection: mart, table: mart.a}, key: [id], columns: [{name: id, type: text}]}
"""
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
COUNTED = {"id", "order_number"}
"""Members of rows that only count."""


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> Fault:
    return disturbing(monkeypatch)


@dataclass
class Site:
    """The small office, its callers, and an administrator who sees everything and puts it back."""

    fault: Fault
    http: Any
    engine: Any
    database: Any
    clock: Any
    admin: Any
    dsn: str
    folder: Any

    def begin(self, prepare: Callable[["Site"], object]) -> None:
        """The office in the morning, made ready for a story, and kept so."""
        self.fault.watching = False
        self.admin.execute(re.sub("select[^;]*pg_terminate_backend[^;]*;", "", EMPTY))  # the connections stay
        self.office = seed(self.database, self.engine, self.clock)
        self.ids: dict[str, Any] = vars(self.office) | {"prepared": prepare(self)}
        self.engine.relay()
        found = self.admin.execute(
            "select format('%I.%I', schemaname, tablename) from pg_tables"
            " where schemaname in ('engine', 'dataset', 'access', 'refresh') and tablename not in ('test_clock', 'run')"
        )
        self.tables = [row[0] for row in found]
        self.known = set(UUID.findall(json.dumps([self.rows(table) for table in self.tables])))
        self.admin.execute("drop schema if exists kept cascade; create schema kept")
        for table in self.tables:
            self.admin.execute(f'create table kept."{table}" as table {table}')

    def put_back(self) -> None:
        copies = [
            f'delete from {table}; insert into {table} overriding system value table kept."{table}";'
            for table in self.tables
        ]
        self.admin.execute(f"begin; set local session_replication_role = replica; {''.join(copies)} commit")

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [row[0] for row in self.admin.execute(f"select to_jsonb(t) from {table} t")]

    def state(self) -> dict[str, list[str]]:
        """Everything that is there, but for what is never the same twice."""
        self.admin.execute("update engine.outbox set send_at = engine.clock()")
        self.engine.relay()  # what is owed is sent, whenever
        return {table: sorted(self.told(row) for row in self.rows(table)) for table in self.tables}

    def told(self, row: dict[str, Any]) -> str:
        kept = {name: value for name, value in row.items() if name not in COUNTED or not isinstance(value, int)}
        kept.pop("hash", None)
        return UUID.sub(lambda found: found[0] if found[0] in self.known else "new", json.dumps(kept))


@dataclass(frozen=True)
class Request:
    """A request; ``again`` is what it is answered where it was done before, and its answer was lost."""

    body: Any = None
    headers: tuple[tuple[str, str], ...] = ()
    prepare: Callable[[Site], object] = lambda site: None
    again: int | None = None
    dataset: str = "flights"
    twice: bool = False

    def ask(self, site: Site, method: str, path: str) -> int:
        path = path.format(job=site.ids["prepared"], dataset=self.dataset, number=1)
        token = site.ids["tokens"]["operator"]
        return int(call(site.http, method, path, token, self.body, **dict(self.headers)).status_code)


def cancelled(site: Site) -> object:
    site.engine.cancel(site.office.active)
    return site.office.active


def loadable(site: Site) -> None:
    definition = DEFINITION | {"key": ["year"]}
    call(site.http, "PUT", "/datasets/flights/definition", site.office.tokens["operator"], definition)


def loading(site: Site) -> object:
    loadable(site)
    asked = {"content_type": "text/csv", "idempotency_key": "1"}
    answered = call(site.http, "POST", "/datasets/flights/loads", site.office.tokens["operator"], b"year\n1\n", **asked)
    return json.loads(answered.body)["id"]


def uploading(site: Site) -> object:
    loadable(site)
    path = "/datasets/flights/loads/uploads"
    return json.loads(call(site.http, "POST", path, site.office.tokens["operator"], {"bytes": 7}).body)["id"]


def scheduled(site: Site) -> None:
    call(site.http, "PUT", "/refreshes/schedule", site.office.tokens["operator"], CADENCE)


def the(name: str) -> Callable[[Site], object]:
    return lambda site: getattr(site.office, name)


KEY = (("idempotency_key", "a-key"),)
IF_MATCH = (("if_match", f'"{Definition.parse(DEFINITION).etag}"'),)
REQUESTS = {
    ("DELETE", "/datasets/{dataset}"): Request(again=410, dataset="flatlands"),
    ("PUT", "/datasets/{dataset}/definition"): Request(DEFINITION | {"themes": ["ENVI"]}, IF_MATCH),
    ("PUT", "/datasets/{dataset}/schedule"): Request(CADENCE),
    ("DELETE", "/datasets/{dataset}/schedule"): Request(again=404),
    ("POST", "/datasets/{dataset}/publications"): Request({}, KEY, cancelled),
    ("DELETE", "/publications/{job}"): Request(prepare=the("active")),
    ("DELETE", "/datasets/{dataset}/versions/{number}"): Request(None, KEY, cancelled),
    # An upload whose address nobody was told is garbage from its beginning.
    ("POST", "/datasets/{dataset}/loads/uploads"): Request({"bytes": 7}, prepare=loadable, twice=True),
    ("POST", "/datasets/{dataset}/loads"): Request(b"year\n1\n", (*KEY, ("content_type", "text/csv")), loadable),
    ("POST", "/datasets/{dataset}/loads?format=csv&upload={job}"): Request(b"", KEY, uploading),
    ("DELETE", "/loads/{job}"): Request(prepare=loading),
    ("POST", "/refreshes"): Request({}, KEY, lambda site: site.engine.cancel(site.office.refresh)),
    ("PUT", "/refreshes/schedule"): Request(CADENCE),
    ("DELETE", "/refreshes/schedule"): Request(prepare=scheduled, again=404),
    ("PUT", "/internal/refresh"): Request({"rollback": "cd" * 32}),
    ("DELETE", "/internal/refresh"): Request(),
    ("POST", "/internal/jobs/{job}/cancel"): Request(prepare=the("active")),
    ("POST", "/internal/failures/{job}/requeue"): Request({}, KEY, cancelled),
    ("DELETE", "/internal/failures/{job}"): Request(prepare=the("failed"), again=404),
    ("PUT", "/internal/catalog"): Request(CATALOG),
    ("PUT", "/internal/pause"): Request({"pipeline": "load", "hours": 1}),
    ("DELETE", "/internal/pause"): Request(prepare=lambda site: site.engine.pause("*", hours=1), again=404),
}


def token_of(site: Site) -> object:
    return site.database.one("select id from access.token where principal = 'reader@example.org'")["id"]


def spare(site: Site) -> None:
    registry.add_connection(site.database, "spare", "LEASEWAY_SECRET_SPARE")
    with site.database.transaction() as tx:
        registry.register_source(tx, "spare", "office", relation="public.spare", query=None)


def files(site: Site) -> None:
    registry.add_connection(site.database, "mart", "LEASEWAY_SECRET_MART")
    (site.folder / "roads.yaml").write_text("connection: office\nrelation: public.roads\n")
    (site.folder.parent / "refresh.yaml").write_text(MANIFEST)


COMMANDS = {
    "token create roads-office": lambda site: None,
    "token revoke {prepared}": token_of,
    "connection add more --secret LEASEWAY_SECRET_MORE": lambda site: None,
    "source register roads --connection office --table public.roads": lambda site: None,
    "source apply {folder}": files,
    "source remove spare --yes": spare,
    "connection remove spare --yes": spare,
    "manifest register {folder}/../refresh.yaml": files,
}
ELSEWHERE = {
    "tests/integration/pipelines/test_restore.py": {"lift_version"},
    "tests/integration/pipelines/test_conflicts.py": {
        *("add_version", "correct_version", "withdraw_version"),
        *("note_export", "delete_export", "take_slot", "release_slots"),
        *("record_load", "delete_upload"),
    },
    "tests/integration/pipelines/test_refresh_interrupted.py": {
        *("add_audit", "settle_fence", "take_fence", "make_fence_table"),
    },
    "nowhere: it says update, or delete, and does neither": {"look_at_target", "find_export"},
}
"""Writes that nobody asks for from outside, and where they are disturbed."""


@pytest.fixture
def site(fault, http, engine, database, clock, admin_database_dsn, dsn, environment, tmp_path) -> Iterator[Site]:
    environment.setattr(refreshes, "_is_kept", lambda call, digest: True)
    (tmp_path / "sources").mkdir()
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        yield Site(fault, http, engine, database, clock, admin, dsn, tmp_path / "sources")
        admin.execute("drop schema if exists kept cascade")


def in_every_way(site: Site, act: Callable[[], int], wrong: int, again: int | None = None, twice: bool = False) -> None:
    """Act once undisturbed; then, from the same beginning, with each write disturbed in each way, and once more."""
    site.fault.watch()
    done = act()
    points, expected = site.fault.points, site.state()
    assert points
    for number, (name, commits) in enumerate(points):
        for mode in modes(number, commits):
            site.put_back()
            site.fault.watch(number, mode)
            first = act()
            site.fault.watching = False
            last = act() if first == wrong else first
            at = f"{name} ({number}), {mode}: {first}, then {last}"
            assert last == done or (mode == "after" and last == again), at
            for table, rows in site.state().items():
                if table == "access.act":  # who asks twice has asked twice
                    assert set(expected[table]) <= set(rows), at
                else:
                    assert (set(rows), twice or len(rows)) == (set(expected[table]), twice or len(expected[table])), at


@pytest.mark.parametrize(("method", "path"), REQUESTS)
def test_T27_a_request_that_goes_wrong_at_a_write_and_comes_again_is_done_once(site, method, path):
    request = REQUESTS[method, path]
    site.begin(request.prepare)

    in_every_way(site, lambda: request.ask(site, method, path), 503, request.again, request.twice)


def command_of(site: Site, command: str) -> Callable[[], int]:
    words = [word.format(folder=site.folder, **site.ids) for word in command.split()]
    return lambda: CliRunner().invoke(leaseway, words).exit_code


@pytest.mark.parametrize("command", COMMANDS)
def test_T27_a_command_that_goes_wrong_at_a_write_and_comes_again_is_done_once(site, command):
    site.begin(COMMANDS[command])

    in_every_way(site, command_of(site, command), 1, again=1 if " remove " in command else None)  # it is gone already


def test_T27_every_route_that_writes_is_among_them(app):
    there = {(method, path) for path, methods in app.routes.items() for method in methods}
    listed = {(method, path.partition("?")[0]) for method, path in REQUESTS}

    assert {(method, path) for method, path in there if method not in ("GET", "HEAD")} == listed


def test_T27_every_statement_that_writes_is_among_them(site):
    seen = set()
    for (method, path), request in REQUESTS.items():
        site.begin(request.prepare)
        site.fault.watch()
        assert request.ask(site, method, path) < 300, path
        seen |= {name for name, _ in site.fault.points}
    for command, prepare in COMMANDS.items():
        site.begin(prepare)
        site.fault.watch()
        assert command_of(site, command)() == 0, command
        seen |= {name for name, _ in site.fault.points}

    there = {name for package in PACKAGES for name in writing_statements(package)}
    assert there - seen == {name for kept in ELSEWHERE.values() for name in kept}
