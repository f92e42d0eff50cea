"""A withdrawal from the request to the end, and everything that may happen to it on the way."""

import json
import os
from contextlib import contextmanager, suppress
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest

from chalicelib import pipelines
from chalicelib.catalog.store import GraphStore
from chalicelib.datasets import registry
from chalicelib.db import Database, DatabaseAway, Transaction
from chalicelib.engine import Leased, LeaseLost, Refusal, SubjectBusy
from chalicelib.exports.storage import Store
from chalicelib.pipelines.export.service import DataService
from chalicelib.pipelines.withdrawal import steps
from tests.integration.pipelines.conftest import CLOSED, Killed

GRAPH = "http://localhost:4000/datasets/trees"
HAS = "http://www.w3.org/ns/dcat#hasVersion"
PREVIOUS = "http://www.w3.org/ns/dcat#previousVersion"


@pytest.fixture
def shelf(office):
    """An office that has published three versions."""
    for _ in range(3):
        office.publish()
        office.run(2)
    assert [version["number"] for version in registry.versions(office.db, "trees")] == [3, 2, 1]
    return office


def withdraw(office, number: int) -> UUID:
    return pipelines.withdraw(office.engine, "trees", number).id


def version(office, number):
    return registry.version(office.db, "trees", number)


def keys(office, *numbers):
    return sorted(file["key"] for number in numbers for file in version(office, number)["files"])


def current(office):
    with office.db.transaction() as tx:
        return registry.lock_dataset(tx, "trees")["current_version"]


def catalogue(office) -> list[str]:
    """The entry as the triple store holds it, without the fence."""
    answer = office.store._send(
        office.store._query_url,
        "application/sparql-query",
        f"SELECT ?s ?p ?o WHERE {{ GRAPH <{GRAPH}> {{ ?s ?p ?o FILTER (?p != <urn:leaseway:fence>) }} }}",
    )
    return sorted(json.dumps(row, sort_keys=True) for row in json.loads(answer)["results"]["bindings"])


def in_the_catalogue(office, number) -> bool:
    """Whether the triple store holds exactly the stored entry of a version, or nothing without one."""
    held, before = catalogue(office), office.store.held(GRAPH).fence
    office.store.replace(GRAPH, version(office, number)["documents"]["nt"].encode() if number else b"", before + 1)
    same = catalogue(office) == held
    office.db.run("select engine.next_claim()")  # the fence that was taken for the comparison
    return same


def test_OD_90_of_three_versions_the_second_is_withdrawn(shelf):
    one, two, three = (version(shelf, number) for number in (1, 2, 3))
    job = withdraw(shelf, 2)
    shelf.run(2)

    status = shelf.engine.status(job)
    assert (status.state, status.version, status.attempts) == ("WITHDRAWN", 2, 1)
    after = version(shelf, 2)
    assert (after["withdrawn_by"], after["withdrawn_at"]) == (job, status.finished_at)
    assert shelf.files() == keys(shelf, 1, 3)
    assert current(shelf) == 3
    assert version(shelf, 1) == one
    changed = version(shelf, 3)
    assert changed["documents"]["nt"] == three["documents"]["nt"].replace("/versions/2>", "/versions/1>")
    assert f"<{GRAPH}/versions/3> <{PREVIOUS}> <{GRAPH}/versions/1> ." in changed["documents"]["nt"]
    assert f"<{GRAPH}> <{HAS}> <{GRAPH}/versions/1> ." in changed["documents"]["nt"]
    for form in ("ttl", "rdf", "jsonld"):
        document = changed["documents"][form]
        assert f"{GRAPH}/versions/2" not in document
        assert sorted(document.splitlines()) == sorted(
            three["documents"][form].replace("/versions/2", "/versions/1").splitlines()
        )
    assert {**changed, "documents": None} == {**three, "documents": None}
    assert in_the_catalogue(shelf, 3)

    assert withdraw(shelf, 2) == job  # and again, for ever
    shelf.clock.advance("60 days")
    shelf.run(16)
    assert withdraw(shelf, 2) == job
    assert shelf.engine.status(job).state == "WITHDRAWN"
    assert two["documents"] == version(shelf, 2)["documents"]


def test_the_catalogue_falls_back_to_the_version_before_and_in_the_end_the_dataset_leaves_it(shelf):
    withdraw(shelf, 3)
    shelf.run(2)
    assert current(shelf) == 2
    assert in_the_catalogue(shelf, 2)
    assert shelf.files() == keys(shelf, 1, 2)

    withdraw(shelf, 1)  # the oldest: its neighbour links to nothing then
    shelf.run(2)
    entry = version(shelf, 2)
    assert PREVIOUS not in entry["documents"]["nt"]
    assert entry["documents"]["nt"].count(f"<{HAS}>") == 1
    assert entry["triples"] == entry["documents"]["nt"].count("\n")
    assert shelf.store.held(GRAPH).triples == entry["triples"]
    assert in_the_catalogue(shelf, 2)

    withdraw(shelf, 2)
    shelf.run(2)
    assert current(shelf) is None
    assert catalogue(shelf) == []
    assert registry.current_entries(shelf.db) == []
    assert shelf.files() == []


def test_a_withdrawn_number_is_never_given_again_and_the_next_version_links_to_the_one_that_stands(shelf):
    withdraw(shelf, 3)
    shelf.run(2)
    shelf.publish()
    shelf.run(2)

    assert [(row["number"], bool(row["withdrawn_at"])) for row in registry.versions(shelf.db, "trees")] == [
        (4, False),
        (3, True),
        (2, False),
        (1, False),
    ]
    assert f"<{GRAPH}/versions/4> <{PREVIOUS}> <{GRAPH}/versions/2> ." in version(shelf, 4)["documents"]["nt"]
    withdraw(shelf, 2)
    shelf.run(2)
    assert f"<{GRAPH}/versions/4> <{PREVIOUS}> <{GRAPH}/versions/1> ." in version(shelf, 4)["documents"]["nt"]
    assert in_the_catalogue(shelf, 4)


def test_the_ledger_forgets_the_files_and_keeps_those_that_stand(shelf):
    withdraw(shelf, 2)
    shelf.run(60)

    kept = shelf.db.run("select locator ->> 'key' as key from engine.ledger where kind = 's3_object'")
    assert sorted(row["key"] for row in kept) == keys(shelf, 1, 3) == shelf.files()
    assert shelf.db.run("select 1 from engine.ledger where status = 'garbage'") == []


def test_one_at_a_time(shelf):
    publication = shelf.publish()
    with pytest.raises(SubjectBusy) as busy:
        withdraw(shelf, 1)
    assert (busy.value.active, busy.value.pipeline) == (publication, "publication")
    shelf.run(2)

    job = withdraw(shelf, 1)
    assert withdraw(shelf, 1) == job
    with pytest.raises(SubjectBusy) as busy:
        withdraw(shelf, 2)
    assert (busy.value.active, busy.value.pipeline) == (job, "withdrawal")
    with pytest.raises(SubjectBusy):
        shelf.publish()
    shelf.run(2)
    assert shelf.engine.status(job).state == "WITHDRAWN"


def test_what_was_never_published_cannot_be_withdrawn(office):
    with pytest.raises(Refusal) as refused:
        withdraw(office, 1)
    assert (refused.value.code, refused.value.field) == ("not_found", "version")


BEFORE, AFTER = "before", "after"
POINTS = {
    "before the replace": (GraphStore, "replace", BEFORE, 1),
    "after the replace": (GraphStore, "replace", AFTER, 1),
    "after reading it back": (GraphStore, "held", AFTER, 1),
    "before the data service is asked": (DataService, "delete", BEFORE, 1),
    "before the first file": (Store, "delete", BEFORE, 1),
    "between two files": (Store, "delete", BEFORE, 2),
    "before a file is seen to be gone": (Store, "head", BEFORE, 3),
    "before the finish": (Leased, "finish", BEFORE, 1),
    "after the finish, before its commit": (Leased, "finish", AFTER, 1),
}
COMMITTED = list(POINTS)[3:]


def kill(monkeypatch, point, times):
    """The worker dies at this point, so many times."""
    owner, name, when, at = POINTS[point]
    whole, calls, left = getattr(owner, name), [0], [times]

    def dying(*args, **kwargs):
        calls[0] += 1
        if left[0] and calls[0] == at:
            calls[0], left[0] = 0, left[0] - 1
            if when == AFTER:
                whole(*args, **kwargs)
            raise Killed
        return whole(*args, **kwargs)

    monkeypatch.setattr(owner, name, dying)


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("point", POINTS)
def test_a_worker_that_dies_anywhere_withdraws_once(shelf, monkeypatch, point, number):
    kill(monkeypatch, point, times=1)
    job = withdraw(shelf, number)
    shelf.work()
    assert bool(version(shelf, number)["withdrawn_at"]) is (point in COMMITTED)
    assert withdraw(shelf, number) == job
    shelf.run(5, clean_up=False)

    status = shelf.engine.status(job)
    assert (status.state, status.version, status.attempts) == ("WITHDRAWN", number, 2)
    standing = [other for other in (1, 2, 3) if other != number]
    assert shelf.files() == keys(shelf, *standing)
    assert current(shelf) == max(standing)
    assert in_the_catalogue(shelf, max(standing))
    assert withdraw(shelf, number) == job
    events = [event["kind"] for event in shelf.engine.history(job)]
    assert events.count("finished") == 1
    assert shelf.db.run("select kind, status from engine.ledger where job_id = %(job)s", job=job) == [
        {"kind": "graph", "status": "kept"}
    ]


@pytest.mark.parametrize("point", ["after the replace", "before the first file", "after the finish, before its commit"])
def test_a_withdrawal_that_fails_for_good_leaves_no_half_and_may_be_asked_for_again(shelf, monkeypatch, point):
    entry = catalogue(shelf)
    kill(monkeypatch, point, times=3)
    job = withdraw(shelf, 3)
    shelf.run(10, clean_up=False)
    assert shelf.engine.status(job).code == "attempts_exhausted"
    shelf.run(45)

    if point in COMMITTED:  # nobody gets at the files any more, and cleanup has removed them
        assert shelf.files() == keys(shelf, 1, 2)
        assert current(shelf) == 2
        assert in_the_catalogue(shelf, 2)
    else:
        assert catalogue(shelf) == entry
        assert shelf.files() == keys(shelf, 1, 2, 3)
        assert current(shelf) == 3
    again = withdraw(shelf, 3)
    assert again != job
    shelf.run(2)
    assert shelf.engine.status(again).state == "WITHDRAWN"
    assert withdraw(shelf, 3) == again
    assert shelf.files() == keys(shelf, 1, 2)
    assert in_the_catalogue(shelf, 2)


@pytest.mark.parametrize(
    ("what", "variables"),
    [
        ("storage_unreachable", {"AWS_ENDPOINT_URL": CLOSED}),
        (
            "triple_store_unreachable",
            {
                "LEASEWAY_TRIPLE_STORE_UPDATE_URL": f"{CLOSED}/update",
                "LEASEWAY_TRIPLE_STORE_QUERY_URL": f"{CLOSED}/query",
            },
        ),
    ],
)
def test_an_hour_without_a_part_fails_no_withdrawal(shelf, what, variables):
    before = {name: os.environ[name] for name in variables}
    shelf.point(**variables)
    job = withdraw(shelf, 3)
    shelf.run(60)
    waiting = shelf.engine.status(job)
    assert (waiting.status, waiting.attempts, waiting.waiting_for.code) == ("running", 1, what)
    assert bool(version(shelf, 3)["withdrawn_at"]) is (what == "storage_unreachable")
    shelf.point(**before)
    shelf.run(10)

    assert shelf.engine.status(job).state == "WITHDRAWN"
    assert shelf.files() == keys(shelf, 1, 2)
    assert in_the_catalogue(shelf, 2)


def test_storage_that_refuses_fails_it_and_storage_that_keeps_a_file_too(shelf, monkeypatch):
    shelf.point(LEASEWAY_BUCKET="somebody-elses")
    job = withdraw(shelf, 3)
    shelf.run(10, clean_up=False)
    assert shelf.engine.status(job).code == "storage_refused"
    shelf.point(LEASEWAY_BUCKET="leaseway-files")

    with monkeypatch.context() as kept:
        kept.setattr(Store, "delete", lambda store, key: None)
        job = withdraw(shelf, 3)
        shelf.run(10, clean_up=False)
    assert shelf.engine.status(job).code == "file_not_deleted"


def test_a_newer_fence_of_cleanup_is_overtaken_by_waiting(shelf, monkeypatch):
    held, require = [], Leased.require

    def cleaned_meanwhile(job, seconds):
        require(job, seconds)
        if not held:
            held.append(shelf.engine.fence(shelf.db))
            shelf.store.empty(GRAPH, held[0])

    monkeypatch.setattr(Leased, "require", cleaned_meanwhile)
    job = withdraw(shelf, 2)
    shelf.work()
    assert version(shelf, 2)["withdrawn_at"] is None
    assert "/versions/2>" in version(shelf, 3)["documents"]["nt"]
    shelf.run(3)

    status = shelf.engine.status(job)
    assert (status.state, status.attempts) == ("WITHDRAWN", 1)
    assert shelf.store.held(GRAPH).fence > held[0]
    assert in_the_catalogue(shelf, 3)


def test_a_stale_worker_withdraws_nothing(shelf, monkeypatch):
    """A worker stops for an hour before it takes the lock; meanwhile its job is cancelled."""
    job = pipelines.withdraw(shelf.engine, "trees", 3)
    leased = shelf.engine.claim("work", job=job.id, ask=UUID(int=1), lease=timedelta(seconds=60))
    shelf.clock.advance("1 hour")
    shelf.engine.recover()
    shelf.engine.cancel(job.id)
    monkeypatch.setattr(Leased, "require", lambda job, seconds: None)
    monkeypatch.setattr(Leased, "note", lambda job, kind, locator: 0)
    entry = catalogue(shelf)

    with pytest.raises(LeaseLost):
        steps.withdraw(leased)

    assert current(shelf) == 3
    assert catalogue(shelf) == entry
    assert shelf.files() == keys(shelf, 1, 2, 3)


@pytest.mark.parametrize("commit", [1, 2], ids=["of the mark", "of the finish"])
@pytest.mark.parametrize("arrived", [True, False], ids=["after COMMIT", "before COMMIT"])
def test_T27_a_connection_that_is_lost_around_a_commit_withdraws_once(shelf, monkeypatch, commit, arrived):
    real, seen = Database.transaction, []

    @contextmanager
    def losing(db):
        seen.append(db)
        with real(db) as tx:
            yield tx
            if len(seen) == commit and not arrived:
                raise DatabaseAway("before COMMIT")
        if len(seen) == commit:
            db.close()
            raise DatabaseAway("after COMMIT, before the reply")

    job = withdraw(shelf, 3)
    monkeypatch.setattr(Database, "transaction", losing)
    with suppress(DatabaseAway):  # the function fails; its message comes again
        shelf.work()
    shelf.run(5)

    assert len(seen) >= commit
    status = shelf.engine.status(job)
    assert (status.state, status.version) == ("WITHDRAWN", 3)
    assert [event["kind"] for event in shelf.engine.history(job)].count("finished") == 1
    assert shelf.files() == keys(shelf, 1, 2)
    assert in_the_catalogue(shelf, 2)


@pytest.mark.parametrize("sqlstate", ["40001", "40P01"])
def test_T27_a_conflict_of_the_database_withdraws_once(shelf, monkeypatch, sqlstate):
    run, thrown = Transaction.run, []

    def conflicting(tx, statement, /, **params):
        if "Mark a version as withdrawn" in statement and not thrown:
            thrown.append(sqlstate)
            raise psycopg.errors.lookup(sqlstate)("conflict")
        return run(tx, statement, **params)

    monkeypatch.setattr(Transaction, "run", conflicting)
    job = withdraw(shelf, 3)
    shelf.run(3)

    assert thrown
    status = shelf.engine.status(job)
    assert (status.state, status.attempts) == ("WITHDRAWN", 2)
    assert in_the_catalogue(shelf, 2)
