"""The database is yesterday's; files, graphs and wake-ups are today's (docs/operating.md, Restoring the database)."""

from contextlib import contextmanager
from copy import deepcopy
from datetime import timedelta
from uuid import UUID, uuid4

import boto3
import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import conninfo_to_dict

from chalicelib import pipelines
from chalicelib.cli import leaseway
from chalicelib.cli.restored import look
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Database
from chalicelib.engine import Outcome
from chalicelib.exports.errors import StorageAway, StorageRefused
from chalicelib.exports.storage import Store
from chalicelib.settings import settings
from tests.integration.pipelines.conftest import BUCKET, DEFINITION
from tests.integration.pipelines.loading import Owner
from tests.integration.pipelines.test_withdrawal import GRAPH, in_the_catalogue

TREES = "insert into src.trees select n, 'tree ' || n from generate_series(1, 100) n on conflict do nothing"
STORY = 350
"""Statements of Leaseway in the story of today, about."""


class Backup:
    """A copy of the whole database; taken between two statements, nobody notices."""

    def __init__(self, office, admin_dsn, database_dsn):
        self.office, self.admin_dsn, self.database_dsn = office, admin_dsn, database_dsn
        self.database = conninfo_to_dict(database_dsn)["dbname"]
        self.name = f"{self.database}_backup"
        self.taken = False

    def take(self) -> None:
        self._copy(self.database, self.name)
        self.taken = True

    def restore(self) -> None:
        """An hour later: the clock is no part of a backup."""
        today = self.office.clock.now()
        self._copy(self.name, self.database)
        self.office.clock.set(str(today + timedelta(hours=1)))

    def drop(self) -> None:
        with psycopg.connect(self.admin_dsn, autocommit=True) as admin:
            admin.execute(f'drop database if exists "{self.name}" with (force)')

    def _copy(self, source, target) -> None:
        self.office.db.close()
        self.office.clock.close()
        with psycopg.connect(self.admin_dsn, autocommit=True) as admin:
            admin.execute("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = %s", [source])
            admin.execute(f'drop database if exists "{target}" with (force)')
            admin.execute(f'create database "{target}" template "{source}"')
        self.office.clock._connection = psycopg.connect(self.database_dsn, autocommit=True)


@pytest.fixture
def backup(office, admin_dsn, admin_database_dsn):
    backup = Backup(office, admin_dsn, admin_database_dsn)
    yield backup
    backup.drop()


@pytest.fixture
def source(admin_database_dsn):
    """Change what is at the source."""

    def change(sql):
        with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
            admin.execute(sql)

    return change


def restored(*options, code=0, answer=None) -> str:
    result = CliRunner().invoke(leaseway, ["restored", *options], input=answer)
    assert result.exit_code == code, result.output
    return result.output


def publish(office, dataset="trees") -> UUID:
    job = pipelines.publish(office.engine, dataset).id
    office.run(2, clean_up=False)
    return job


def withdraw(office, number, dataset="trees") -> UUID:
    job = pipelines.withdraw(office.engine, dataset, number).id
    office.run(2, clean_up=False)
    return job


def numbers(office, dataset="trees") -> list[int]:
    return sorted(row["number"] for row in registry.versions(office.db, dataset))


def standing(office) -> list[str]:
    """The keys of all files of the versions that stand."""
    rows = office.db.run(
        "select file ->> 'key' as key from dataset.version, jsonb_array_elements(files) as file"
        " where withdrawn_at is null"
    )
    return sorted(row["key"] for row in rows)


def today(office, source) -> None:
    """Two versions become four, of which the newest and the third are withdrawn; everything else happens, too."""
    publish(office)
    withdraw(office, 3)
    source("delete from src.trees")
    failed = publish(office)
    assert office.engine.status(failed).code == "too_few_records"
    source(TREES)
    owner = Owner(office)
    owner.load([{"id": 1, "name": "pushed"}])
    owner.upload(b"1;late")
    office.work()
    with office.db.transaction() as tx:
        registry.put_definition(tx, "bushes", Definition.parse(deepcopy(DEFINITION)))
    publish(office, "bushes")
    boto3.client("s3").create_multipart_upload(  # a worker died with it
        Bucket=BUCKET, Key=f"exports/{uuid4()}/{office.engine.fence(office.db)}/trees.csv"
    )
    publish(office)
    withdraw(office, 4)


@pytest.mark.parametrize("statement", range(1, STORY, 58))
def test_restored_to_any_moment_no_number_is_given_twice_and_what_is_left_over_goes(
    office, backup, source, monkeypatch, statement
):
    office.define(key=["id"])
    publish(office)
    publish(office)
    with before(statement, backup.take, monkeypatch) as count:
        today(office, source)
    assert statement <= count[0]
    given = {dataset: set(numbers(office, dataset)) for dataset in ("trees", "bushes")}
    assert given["trees"] == {1, 2, 3, 4}
    backup.restore()
    source(TREES)

    kept = {dataset: set(numbers(office, dataset)) for dataset in given}
    restored()
    assert "next version" not in restored()  # it was lifted
    office.engine.work_on("work", [job for _, job, _ in office.queues.sent], lambda: 900.0)
    office.run(45, clean_up=False)
    assert office.engine.status(publish(office)).state == "PUBLISHED"
    with office.db.transaction() as tx:
        registry.put_definition(tx, "bushes", Definition.parse(deepcopy(DEFINITION)))
    assert office.engine.status(publish(office, "bushes")).state == "PUBLISHED"

    for dataset in given:
        assert not given[dataset] & (set(numbers(office, dataset)) - kept[dataset])
    for dataset, number in look(settings(), office.db).lost:
        withdraw(office, number, dataset)
    restored("--remove", "--yes")
    assert "No file and no graph is left over" in restored("--remove", "--yes")
    office.run(60)
    assert [key for key in office.files() if key.startswith("exports/")] == standing(office)
    assert office.uploads() == []
    known = [f"uploads/{row['id']}" for row in office.db.run("select id from dataset.upload")]  # for a day
    assert [key for key in office.files() if key.startswith("uploads/")] == known
    assert in_the_catalogue(office, max(numbers(office)))
    assert "No file and no graph is left over" in restored()
    assert office.db.run("select id from engine.job where deadline_at is not null") == []


@contextmanager
def before(statement, act, monkeypatch):
    """Before that statement or transaction of Leaseway's the act is done, which it notices nothing of."""
    count = [0]

    def counting(whole):
        def counted(*args, **kwargs):
            count[0] += 1
            if count[0] == statement:
                act()
            return whole(*args, **kwargs)

        return counted

    with monkeypatch.context() as patched:
        for name in ("run", "one", "transaction"):
            patched.setattr(Database, name, counting(getattr(Database, name)))
        yield count


def test_the_newest_version_was_withdrawn_after_the_backup_and_its_number_is_not_given_again(office, backup):
    publish(office)
    backup.take()
    publish(office)
    publish(office)
    withdraw(office, 3)
    withdraw(office, 2)
    withdraw(office, 1)
    backup.restore()

    said = restored()
    assert "trees: the next version is 4." in said
    assert "Version 1 of trees has lost its files: `leaseway withdraw trees 1`." in said
    assert "another one" not in said  # an entry would lead to nothing
    publish(office)
    assert numbers(office) == [1, 4]
    assert in_the_catalogue(office, 4)


def test_a_dataset_that_no_row_knows_leaves_the_catalogue_and_keeps_its_numbers(office, backup):
    backup.take()
    with office.db.transaction() as tx:
        registry.put_definition(tx, "bushes", Definition.parse(deepcopy(DEFINITION)))
    publish(office, "bushes")
    left = office.files()
    backup.restore()

    said = restored()
    assert "The catalogue's graph of bushes is another one: there is no version." in said
    assert [key for key in left if f"No row knows the file {key}.\n" in said] == left
    assert "restored --remove" in said
    assert "Cleanup" not in restored("--remove", answer="n\n")
    office.clean_up()
    assert office.files() == left
    assert "Cleanup" in restored("--remove", answer="y\n")
    office.clean_up()
    assert office.files() == []
    assert office.store.held("http://localhost:4000/datasets/bushes").triples == 0
    assert "No file and no graph is left over" in restored()
    with office.db.transaction() as tx:
        registry.put_definition(tx, "bushes", Definition.parse(deepcopy(DEFINITION)))
    publish(office, "bushes")
    assert numbers(office, "bushes") == [2]


def test_a_graph_of_a_version_that_the_database_never_knew_is_written_anew(office, backup):
    publish(office)
    backup.take()
    publish(office)
    backup.restore()

    assert "graph of trees is another one: version 1 is the current one" in restored("--remove", "--yes")
    assert "another one" not in restored()  # cleanup has it
    office.clean_up()
    assert "another one" not in restored()
    assert in_the_catalogue(office, 1)
    assert office.files() == standing(office)


def test_a_wake_up_of_a_job_that_no_row_knows_is_acknowledged_and_changes_nothing(office, backup):
    backup.take()
    job = publish(office)
    backup.restore()
    assert job in {sent for _, sent, _ in office.queues.sent}

    [worked] = office.engine.work_on("work", [job], lambda: 900.0)
    assert (worked.job, worked.outcome) == (None, Outcome.NOTHING)
    assert office.db.run("select id from engine.job") == []


def test_it_refuses_while_a_job_is_worked_on(office):
    job = office.publish()
    office.engine.claim("work", job=job, ask=uuid4(), lease=timedelta(seconds=60))
    assert "stop the functions" in restored(code=1)
    office.clock.advance("61 s")
    assert "The next fence" in restored()


def test_files_of_sources_are_removed_at_once_and_what_is_not_ours_stays(office):
    file = {"bytes": 1, "sha256": "", "records": 1, "dialect": {}, "columns": []}
    registry.register_file(office.db, "file", {"key": "sources/file/known.csv", **file})
    s3 = boto3.client("s3")
    for key in ("sources/file/known.csv", "sources/file/gone.csv", "packages/1.zip"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"x")

    assert "sources/file/gone.csv" in restored("--remove", "--yes")
    assert office.files() == ["packages/1.zip", "sources/file/known.csv"]
    assert "No file and no graph is left over" in restored()


def test_what_is_away_is_one_sentence(office):
    office.point(LEASEWAY_BUCKET="somebody-elses")
    assert "Object storage must answer" in restored(code=1)


# A publication of the backup whose files are gone


@pytest.fixture
def exported(office):
    """A publication that has its files, and goes on with its last step."""
    job = office.publish()
    ended = {"EXPORTED"}
    while not ended & {row["state"] for row in office.db.run("select state from engine.job")}:
        office.engine.work("work", job=None, until=lambda: 900.0)
    return job


def test_a_publication_whose_files_are_gone_fails_and_a_requeued_one_has_its_own(office, exported):
    for key in office.files():
        boto3.client("s3").delete_object(Bucket=BUCKET, Key=key)
    office.run(3)
    assert office.engine.status(exported).code == "export_lost"
    assert office.store.held(GRAPH).triples == 0

    again = office.engine.requeue(exported).job.id
    office.run(3)
    assert office.engine.status(again).state == "PUBLISHED"
    assert in_the_catalogue(office, 1)


@pytest.mark.parametrize(
    ("error", "attempts"), [(StorageAway(503), 1), (StorageRefused(403), 2)], ids=["away", "refused"]
)
def test_storage_that_does_not_say_whether_the_files_are_there_is_asked_again(
    office, exported, monkeypatch, error, attempts
):
    asked, head = [], Store.head

    def failing(store, key):
        asked.append(key)
        if len(asked) == 1:
            raise error
        return head(store, key)

    monkeypatch.setattr(Store, "head", failing)
    office.run(3)
    status = office.engine.status(exported)
    assert (status.state, status.attempts) == ("PUBLISHED", attempts)
