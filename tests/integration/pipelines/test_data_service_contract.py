"""One suite for every data service: the built-in one, and the client of a remote one (docs/data-service.md)."""

import hashlib
from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest

from chalicelib.datasets.definition import Definition
from chalicelib.exports.data_service import ExportLost, Exports, FileMismatch, NewerFence, RemoteDataService
from chalicelib.pipelines.export.service import DataService
from chalicelib.pipelines.publication import pin
from chalicelib.pipelines.publication.copying import wanted
from tests.data_service.server import TOKEN, serving


class Offered:
    """A data service, what a publication would ask of it, and how time goes by for it."""

    service: Exports

    def __init__(self, office):
        self.office = office

    def wanted(self):
        subject = pin(self.office.db, {"dataset": "trees"})
        definition = self.office.db.one("select body from dataset.definition order by revision desc limit 1")["body"]
        return wanted(uuid4(), subject, Definition.parse(definition))

    def finished(self, asked, fence=7):
        self.service.start(asked, fence=fence)
        self.settle()
        return self.service.start(asked, fence=fence)

    def settle(self) -> None:
        """Let it work."""

    def break_source(self) -> None:
        """The next export fails: a column is gone."""

    def left(self) -> list[str]:
        """What it still keeps of its exports."""
        raise NotImplementedError


class BuiltIn(Offered):
    def __init__(self, office, dsn):
        super().__init__(office)
        self.service = DataService(office.db, office.engine)
        self._dsn = dsn

    def settle(self) -> None:
        self.office.work()
        self.office.clean_up()

    def break_source(self) -> None:
        with psycopg.connect(self._dsn) as admin:
            admin.execute("alter table src.trees drop column name")

    def left(self) -> list[str]:
        return self.office.files() + self.office.uploads()


class Remote(Offered):
    def __init__(self, office, server):
        super().__init__(office)
        self.service = RemoteDataService(server.url, TOKEN, timeout=10)
        self.server = server

    def break_source(self) -> None:
        self.server.failure = {"code": "source_changed", "details": {"column": "name"}}

    def left(self) -> list[str]:
        assert self.server.faults == []
        return self.server.left()


@pytest.fixture(params=["built-in", "remote"])
def offered(request, office, admin_database_dsn) -> Iterator[Offered]:
    if request.param == "built-in":
        yield BuiltIn(office, admin_database_dsn)
        return
    with serving() as server:
        yield Remote(office, server)


def test_asked_twice_it_is_the_same_export_and_its_files_are_what_their_list_says(offered) -> None:
    asked = offered.wanted()
    first = offered.service.start(asked, fence=7)
    again = offered.service.start(asked, fence=8, known=True)
    offered.settle()
    done = offered.service.start(asked, fence=9, known=True)

    assert (first.done, first.failed, again.failed) == (False, None, None)
    assert 2 <= first.retry_after <= 60
    assert (done.done, done.records, done.bytes) == (True, 100, sum(file.bytes for file in done.files))
    assert [(file.name, file.format, file.media_type, file.compress) for file in done.files] == [
        (file.name, file.format, file.media_type, file.compress) for file in asked.files
    ]
    for file in done.files:
        content = b"".join(offered.service.read(asked.key, file.name))
        assert (len(content), hashlib.sha256(content).hexdigest(), file.records) == (file.bytes, file.sha256, 100)
        assert b"".join(offered.service.read(asked.key, file.name, 70)) == content[70:]
    assert offered.service.look(asked).files == done.files == offered.finished(asked, 9).files
    assert len(offered.left()) == (1 if isinstance(offered, Remote) else 3)


def test_an_older_fence_is_refused_and_changes_nothing(offered) -> None:
    asked = offered.wanted()
    offered.service.start(asked, fence=9)
    with pytest.raises(NewerFence) as newer:
        offered.service.start(asked, fence=8)
    assert newer.value.fence == 9
    assert offered.finished(asked, 9).done
    with pytest.raises(NewerFence):
        offered.service.start(asked, fence=8, known=True)


def test_each_key_has_a_fence_of_its_own(offered) -> None:
    one, other = offered.wanted(), offered.wanted()
    offered.service.start(one, fence=9)
    offered.service.start(other, fence=8)
    assert offered.finished(other, 8).done


def test_what_is_not_there_is_lost_and_never_silently_begun(offered) -> None:
    asked = offered.wanted()
    with pytest.raises(ExportLost):
        offered.service.look(asked)
    with pytest.raises(ExportLost):
        offered.service.start(asked, fence=7, known=True)
    offered.settle()
    assert offered.left() == []
    offered.finished(asked)
    with pytest.raises(FileMismatch):
        list(offered.service.read(asked.key, "no-such-file.csv"))


@pytest.mark.parametrize("when", ["before it is known", "while it runs", "when it is done"])
def test_deleted_it_is_gone_for_good_and_deleting_again_is_no_effect(offered, when) -> None:
    asked = offered.wanted()
    if when == "while it runs":
        offered.service.start(asked, fence=7)
    if when == "when it is done":
        offered.finished(asked)

    assert offered.service.delete(asked.key) is True
    offered.settle()
    assert offered.service.delete(asked.key) is True
    for fence in (7, 8):  # a start that was still on its way
        with pytest.raises(ExportLost):
            offered.service.start(asked, fence=fence)
    with pytest.raises(ExportLost):
        offered.service.look(asked)
    offered.settle()
    assert offered.left() == []


def test_a_failed_export_says_why(offered) -> None:
    offered.break_source()
    failed = offered.finished(offered.wanted())
    assert (failed.done, failed.failed, failed.details["column"]) == (False, "source_changed", "name")


def test_a_gzip_variant_is_a_file_of_its_own(offered) -> None:
    offered.office.define(formats=["csv", "json"], gzip=["csv"])
    asked = offered.wanted()
    done = offered.finished(asked)

    assert [(file.name, file.media_type, file.compress) for file in done.files] == [
        ("trees.csv", "text/csv", None),
        ("trees.csv.gz", "text/csv", "application/gzip"),
        ("trees.json", "application/json", None),
    ]
    assert [(file.name, file.media_type, file.compress) for file in asked.files] == [
        (file.name, file.media_type, file.compress) for file in done.files
    ]


def test_an_export_whose_job_is_gone_is_lost_for_its_key_stands_for_it(office, admin_database_dsn) -> None:
    built_in = BuiltIn(office, admin_database_dsn)
    asked = built_in.wanted()
    assert built_in.finished(asked).done
    office.db.run("delete from engine.job")
    assert built_in.service.start(asked, fence=7).failed == "export_lost"
