"""A month in an office: ten datasets, every night at two, and all that may happen to them in thirty nights."""

import os
from copy import deepcopy
from datetime import date, timedelta
from zoneinfo import ZoneInfo

import psycopg
import pytest

from chalicelib import pipelines
from chalicelib.api.documents import dataset_status
from chalicelib.api.routing import Call
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.engine import Cadence
from chalicelib.exports.errors import SourceError
from chalicelib.pipelines.export import steps as export_steps
from tests.integration.pipelines.conftest import DEFINITION, Killed

BERLIN = ZoneInfo("Europe/Berlin")
DATASETS = [f"trees-{number}" for number in range(10)]
NIGHTS = [date(2026, 3, 3) + timedelta(days=n) for n in range(30)]
SUMMER_TIME = date(2026, 3, 29)
DEAD_DSN = "postgresql://reader:secret@127.0.0.1:9/nowhere"


class Month:
    """The office's datasets, a night at a time."""

    def __init__(self, office, admin, monkeypatch):
        self.office = office
        self.admin = admin
        self.patch = monkeypatch
        for dataset in DATASETS:
            table = dataset.replace("-", "_")
            admin.execute(f"create table src.{table} as table src.trees")
            admin.execute(f"grant select on src.{table} to leaseway_app")
            registry.register_source(office.db, dataset, "src", f"src.{table}", None)
            self.define(dataset)
            cadence = Cadence("day", "02:00", "Europe/Berlin")
            office.engine.set_schedule(f"dataset:{dataset}", "publication", {"dataset": dataset}, cadence)

    def define(self, dataset, **changes):
        definition = Definition.parse(deepcopy(DEFINITION) | {"source": dataset, "formats": ["csv"]} | changes)
        with self.office.db.transaction() as tx:
            registry.put_definition(tx, dataset, definition)

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
        context = pipelines.Context(self.office.engine.settings, self.office.db, self.office.engine)
        definition = registry.definition(self.office.db, dataset)
        return dataset_status(Call(None, context, None), dataset, definition)


@pytest.fixture
def month(office, admin_database_dsn, monkeypatch):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        yield Month(office, admin, monkeypatch)


def test_a_month_in_an_office(month):
    office, expected = month.office, dict.fromkeys(DATASETS, 0)
    for night in NIGHTS:
        failing = by_day(month, night)
        month.begin_night()
        local = office.clock.now().astimezone(BERLIN)
        assert (local.date(), local.hour) == (night, 3 if night == SUMMER_TIME else 2)
        if night == date(2026, 3, 7):
            an_hour_without_the_source(month)
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
        case 3, 10:
            a_replica_that_puts_replication_first(month, "trees-1")
        case 3, 12:
            month.admin.execute("alter table src.trees_2 add column owner text")
        case 3, 15:
            month.admin.execute("alter table src.trees_3 drop column name")
            return {"trees-3": ("source_changed", {"column": "name"}, "leaseway publish trees-3")}
        case 3, 16:  # status says it, and the office publishes what is left
            month.define("trees-3", columns=DEFINITION["columns"][:1])
        case 3, 19:
            month.admin.execute("truncate src.trees_4")
            mending = "leaseway publish trees-4 --accept-drop"
            return {"trees-4": ("too_few_records", {"records": 0, "minimum": 50}, mending)}
        case 3, 20:
            month.admin.execute("insert into src.trees_4 table src.trees")
        case 3, 23:
            a_worker_that_dies(month)
        case 3, 26:
            for dataset in DATASETS:
                columns = DEFINITION["columns"][: 1 if dataset == "trees-3" else 2]
                month.define(dataset, columns=columns, contact={"name": {"en": "Desk"}, "email": "new@example.org"})
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


def a_replica_that_puts_replication_first(month, dataset):
    export, cancelled = export_steps.export, []

    def conflicting(relation, *args, **kwargs):
        if relation.relation == f"src.{dataset.replace('-', '_')}" and not cancelled:
            cancelled.append(relation)
            raise SourceError("source_conflict", "40001", relation=relation.relation)
        return export(relation, *args, **kwargs)

    month.patch.setattr(export_steps, "export", conflicting)


def a_worker_that_dies(month):
    add, died = registry.add_version, []

    def dying(*args, **kwargs):
        if not died:
            died.append(kwargs["dataset"])
            raise Killed
        return add(*args, **kwargs)

    month.patch.setattr(registry, "add_version", dying)
