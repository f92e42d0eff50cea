"""A month in an office: ten datasets, every night at two, and all that may happen to them in thirty nights.

What happens is real: the source's database goes away or says no, files are edited and applied, PostgreSQL restarts.
"""

import os
from collections.abc import Iterator
from datetime import date, timedelta
from zoneinfo import ZoneInfo

import httpx
import psycopg
import pytest
from chalice import Chalice
from chalice.test import Client
from click.testing import CliRunner

from chalicelib import api, pipelines
from chalicelib.api.documents import dataset_status
from chalicelib.api.routing import Call
from chalicelib.cli import applying, leaseway, remote
from chalicelib.datasets import registry
from chalicelib.db import migrate
from chalicelib.security import create_token
from localstack.postgresql import PostgreSQL
from tests.conftest import TEST_CLOCK, running_postgresql
from tests.integration.pipelines.conftest import Killed

BERLIN = ZoneInfo("Europe/Berlin")
DATASETS = [f"trees-{number}" for number in range(10)]
NIGHTS = [date(2026, 3, 3) + timedelta(days=n) for n in range(30)]
SUMMER_TIME = date(2026, 3, 29)
DEAD_DSN = "postgresql://reader:secret@127.0.0.1:9/nowhere"
DEFAULTS = """\
publisher: {name: {en: Office}, iri: https://office.example.org/id}
contact: {name: {en: Open data desk}, email: opendata@example.org}
licence: CC0
languages: [en]
"""
NAME = "  - {name: name, type: text}\n"
DATASET = f"""\
title: {{en: Trees, de: Bäume}}
description: {{en: Every tree of the city., de: Jeder Baum der Stadt.}}
keywords: {{en: [trees]}}
themes: [ENVI]
source: SOURCE
formats: [csv]
schedule: {{every: day, at: 02:00, zone: Europe/Berlin}}
columns:
  - {{name: id, type: integer}}
{NAME}"""
REPLICA = """
create table src.replica as select false as conflicting;
create function src.calm() returns boolean language plpgsql security definer as $$
begin
    if (select conflicting from src.replica) then
        raise sqlstate '40001' using message = 'canceling statement due to conflict with recovery';
    end if;
    return true;
end $$;
alter table src.trees_1 rename to trees_on_the_replica;
create view src.trees_1 as select id, name from src.trees_on_the_replica where src.calm();
grant select on src.trees_1 to leaseway_app;
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgreSQL]:
    """A PostgreSQL that may be restarted: nobody else's tests are in it."""
    with running_postgresql() as made:
        yield made


@pytest.fixture(scope="module")
def session_database_dsn(server: PostgreSQL) -> str:
    migrate(server.dsn, "http://localhost:4000")
    with psycopg.connect(server.dsn) as connection:
        connection.execute(TEST_CLOCK)
    return server.dsn


class Month:
    """The office's datasets, a night at a time."""

    def __init__(self, office, server, dsn, folder, monkeypatch):
        self.office = office
        self.server = server
        self.dsn = dsn
        self.folder = folder
        self.patch = monkeypatch
        monkeypatch.setattr(pipelines, "context", office.context)
        app = Chalice(app_name="leaseway-test")
        api.register(app)
        self._http = Client(app).http
        there = remote.Remote("http://localhost:4000", create_token(office.db, "office", "operator"), "")
        there._http = httpx.Client(transport=httpx.MockTransport(self._answer))
        monkeypatch.setattr(applying, "remote", lambda: there)
        self.admin = psycopg.connect(server.dsn, autocommit=True)
        self.write("defaults", DEFAULTS)
        for dataset in DATASETS:
            table = dataset.replace("-", "_")
            self.admin.execute(f"create table src.{table} as table src.trees")
            self.admin.execute(f"grant select on src.{table} to leaseway_app")
            registry.register_source(office.db, dataset, "src", f"src.{table}", None)
            self.write(dataset, DATASET.replace("SOURCE", dataset))
        self.admin.execute(REPLICA)
        assert "10 created." in self.apply()

    def _answer(self, request):
        path = request.url.raw_path.decode()
        answer = self._http.request(request.method, path, headers=dict(request.headers), body=request.read())
        return httpx.Response(answer.status_code, headers=answer.headers, content=answer.body)

    def write(self, name, text):
        (self.folder / f"{name}.yaml").write_text(text, encoding="utf-8")

    def edit(self, name, before, after):
        """Change a file by hand, and apply the folder."""
        text = (self.folder / f"{name}.yaml").read_text(encoding="utf-8")
        assert before in text
        self.write(name, text.replace(before, after))
        return self.apply()

    def apply(self):
        result = CliRunner().invoke(leaseway, ["apply", str(self.folder)])
        assert result.exit_code == 0, result.output
        return result.output

    def begin_night(self):
        """It is two o'clock: everything that is due begins."""
        due = {schedule.next_due_at for schedule in self.office.engine.schedules()}
        assert len(due) == 1
        self.office.clock.set(due.pop().isoformat())
        self.office.engine.recover()
        assert self.office.engine.catch_up()["started"] == len(DATASETS)

    def end_night(self):
        """Time goes by until nothing is at work any more."""
        for _ in range(60):
            self.office.work()
            if not any(self.office.engine.find(f"dataset:{dataset}") for dataset in DATASETS):
                self.office.clean_up()
                return
            self.office.clock.advance("20 s")
            self.office.engine.recover()
        raise AssertionError("the night has no end")

    def status(self, dataset):
        """What `leaseway status` shows."""
        definition = registry.definition(self.office.db, dataset)
        return dataset_status(Call(None, self.office.context(), None), dataset, definition)


@pytest.fixture
def month(office, server, dsn, tmp_path, monkeypatch):
    made = Month(office, server, dsn, tmp_path, monkeypatch)
    yield made
    made.admin.close()


def test_a_month_in_an_office(month):
    office, expected = month.office, dict.fromkeys(DATASETS, 0)
    for night in NIGHTS:
        failing = by_day(month, night)
        month.begin_night()
        local = office.clock.now().astimezone(BERLIN)
        assert (local.date(), local.hour) == (night, 3 if night == SUMMER_TIME else 2)
        DURING.get(night, lambda month: None)(month)
        month.end_night()
        for dataset in DATASETS:
            status, failed = month.status(dataset), failing.get(dataset)
            expected[dataset] += not failed
            assert (status["version"]["number"], status["active"]) == (expected[dataset], None), (night, dataset)
            if failed:
                failure = status["failure"]["failure"]
                assert (failure["code"], status["failure"]["command"]) == (failed[0], failed[2]), (night, dataset)
                assert failed[1].items() <= failure["details"].items()
            else:
                assert status["failure"] is None, (night, dataset)
                assert status["version"]["age_seconds"] < 2 * 3600, (night, dataset)

    failures = office.engine.failures(pipeline="publication")
    assert [failure.subject["dataset"] for failure in failures] == ["trees-4", "trees-3"]
    assert expected == dict.fromkeys(DATASETS, 30) | {"trees-3": 29, "trees-4": 29}
    assert month.status("trees-2")["version"]["unpublished_columns"] == ["owner"]
    entries = [registry.version(office.db, "trees-0", number)["documents"]["nt"] for number in (23, 24)]
    assert ["new@example.org" in entry for entry in entries] == [False, True]


def by_day(month, night):
    """What somebody does before that night, and the datasets that fail for it: code, details, what mends it."""
    match night.month, night.day:
        case 3, 12:
            month.admin.execute("alter table src.trees_2 add column owner text")
        case 3, 15:
            month.admin.execute("alter table src.trees_3 drop column name")
            return {"trees-3": ("source_changed", {"column": "name"}, "leaseway publish trees-3")}
        case 3, 16:  # status says it, and the office publishes what is left
            assert "1 changed, 9 unchanged." in month.edit("trees-3", NAME, "")
        case 3, 19:
            month.admin.execute("truncate src.trees_4")
            mending = "leaseway publish trees-4 --accept-drop"
            return {"trees-4": ("too_few_records", {"records": 0, "minimum": 50}, mending)}
        case 3, 20:
            month.admin.execute("insert into src.trees_4 table src.trees")
        case 3, 26:  # shared by all: one edit
            assert "10 changed." in month.edit("defaults", "opendata@example.org", "new@example.org")
    return {}


def an_hour_without_the_source(month):
    address = os.environ["LEASEWAY_SECRET_SRC"]
    month.office.point(LEASEWAY_SECRET_SRC=DEAD_DSN)
    for _ in range(12):
        month.office.work()
        month.office.clock.advance("5 min")
        month.office.engine.recover()
    active = month.status("trees-0")["active"]
    assert active["waiting_for"]["code"] == "source_unreachable"
    assert active["attempts"] == 1
    month.office.point(LEASEWAY_SECRET_SRC=address)


def a_replica_that_puts_replication_first(month):
    """The source's server cancels a query, as a standby does; ten minutes later it doesn't any more."""
    month.admin.execute("update src.replica set conflicting = true")
    for _ in range(10):
        month.office.work()
        month.office.clock.advance("1 min")
        month.office.engine.recover()
    active = month.status("trees-1")["active"]
    assert active["waiting_for"]["code"] == "source_conflict"
    assert active["attempts"] == 1
    month.admin.execute("update src.replica set conflicting = false")


def the_stack_is_restarted(month):
    """A worker dies in the middle; then PostgreSQL stops and starts, and every process is another one."""
    office = month.office

    def dying(*args, **kwargs):
        raise Killed

    def working():
        for _ in range(30):
            office.engine.work_on("work", [], lambda: 900.0)
            office.clock.advance("20 s")

    with month.patch.context() as patch:
        patch.setattr(registry, "add_version", dying)
        with pytest.raises(Killed):
            working()
    assert office.engine.jobs(pipeline="publication", status="running")
    pid = month.server.pid()
    month.server.stop()
    month.server.start()
    assert month.server.pid() != pid
    month.admin.close()
    month.admin = psycopg.connect(month.server.dsn, autocommit=True)
    office.clock.connect(month.server.dsn)
    office.new_processes(month.dsn)


DURING = {
    date(2026, 3, 7): an_hour_without_the_source,
    date(2026, 3, 10): a_replica_that_puts_replication_first,
    date(2026, 3, 23): the_stack_is_restarted,
}
