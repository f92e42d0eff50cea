"""Datasets are listed page by page, and deleted once nothing of them is published; publications are cancelled."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Event
from uuid import UUID, uuid4

import pytest

from chalicelib import pipelines
from chalicelib.datasets import registry
from chalicelib.db import Database
from chalicelib.engine import Engine, Refusal
from chalicelib.security import create_token
from tests.conftest import PUBLIC_URL

from .seeding import DEFINITION, call, define, fail, problem, publish, register_source, tokens, withdraw, written

SCHEDULE = {"every": "day", "at": "02:00"}


@pytest.fixture
def ask(http, database):
    """Requests of the publisher, whose pattern is fl*."""
    register_source(database)
    define(database)
    token = tokens(database)["publisher"]

    def asking(method, path, body=None, token=token, **headers):
        return call(http, method, path.removeprefix(PUBLIC_URL), token, body, **headers)

    return asking


def listed(answered):
    assert answered.status_code == 200, answered.body
    return [item["dataset"] for item in json.loads(answered.body)["datasets"]]


def test_datasets_are_listed_with_their_titles_and_current_versions(ask, database, engine, clock):
    define(database, "flatlands")
    publish(database, engine, clock)

    answered = ask("GET", "/datasets")
    document = json.loads(answered.body)

    assert [item["dataset"] for item in document["datasets"]] == ["flatlands", "flights"]
    assert document["next"] is None
    assert "Link" not in answered.headers
    unpublished, published = document["datasets"]
    assert published["title"] == DEFINITION["title"]
    assert (published["version"]["number"], published["version"]["records"]) == (1, 336_776)
    assert published["links"]["self"] == f"{PUBLIC_URL}/datasets/flights"
    assert unpublished["version"] is None
    assert listed(ask("GET", "/datasets?status=published")) == ["flights"]
    assert listed(ask("GET", "/datasets?status=unpublished")) == ["flatlands"]


def test_a_long_list_comes_in_pages_that_the_link_header_leads_through(ask, database):
    names = [f"fl-{number:02}" for number in range(7)]
    for name in names:
        define(database, name)

    found, address, pages = [], "/datasets?limit=3&status=unpublished", 0
    while address:
        answered = ask("GET", address)
        found += listed(answered)
        link = answered.headers.get("Link")
        assert bool(link) is (json.loads(answered.body)["next"] is not None)
        address = link and link.removeprefix("<").removesuffix('>; rel="next"')
        pages += 1
    assert found == sorted([*names, "flights"])
    assert pages == 3
    assert listed(ask("GET", "/datasets?after=fl-05")) == ["fl-06", "flights"]


@pytest.mark.parametrize(
    ("pattern", "seen"),
    [("*", ["a", "flights", "roads-1"]), ("roads-*", ["roads-1"]), ("*s", ["flights"]), ("flights", ["flights"])],
)
def test_only_what_the_token_reaches_is_listed(ask, database, pattern, seen):
    for name in ("roads-1", "a"):
        define(database, name)

    assert listed(ask("GET", "/datasets", token=create_token(database, "some", "reader", pattern))) == seen
    assert len(listed(ask("GET", "/datasets", token=create_token(database, "ops", "operator", pattern)))) == 3


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("status=gone", "status"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("after=%25", "after"),
        ("after=", "after"),
        ("x=1", "x"),
    ],
)
def test_a_parameter_that_is_none_is_refused(ask, query, field):
    problem(ask("GET", f"/datasets?{query}"), 400, "bad_parameter", field)


def test_a_dataset_is_deleted_once_its_versions_are_withdrawn_and_its_id_is_never_given_again(
    ask, http, database, engine, clock
):
    publish(database, engine, clock)
    publish(database, engine, clock)
    ask("PUT", "/datasets/flights/schedule", SCHEDULE)
    before = written(database)
    refused = problem(ask("DELETE", "/datasets/flights"), 409, "has_versions")
    assert "Withdraw each" in refused["detail"]
    withdraw(database, engine, version=2)
    problem(ask("DELETE", "/datasets/flights"), 409, "has_versions")
    assert written(database)["engine.schedule"] == before["engine.schedule"]
    withdraw(database, engine, version=1)

    deleted = ask("DELETE", "/datasets/flights")

    assert (deleted.status_code, deleted.body) == (204, b"")
    assert listed(ask("GET", "/datasets")) == []
    assert engine.schedules() == []
    before = written(database)
    for method, path, body in (
        ("DELETE", "/datasets/flights", None),
        ("PUT", "/datasets/flights/definition", DEFINITION),
        ("PUT", "/datasets/flights/definition?dry_run=true", DEFINITION),
        ("POST", "/datasets/flights/publications", None),
    ):
        problem(ask(method, path, body), 410, "gone")
    problem(ask("PUT", "/datasets/flights/schedule", SCHEDULE), 404)
    problem(ask("GET", "/datasets/flights/definition"), 404)
    problem(ask("GET", "/datasets/flights/status"), 410, "gone")
    for path in ("/datasets/flights", "/datasets/flights/files/flights.csv", "/datasets/flights/versions/1"):
        problem(call(http, "GET", path), 410, "gone")
    numbers = [each["version"] for each in json.loads(call(http, "GET", "/datasets/flights/versions").body)["versions"]]
    assert numbers == [2, 1]
    assert written(database) == before


def test_a_dataset_at_work_is_not_deleted(ask, database, engine):
    job = json.loads(ask("POST", "/datasets/flights/publications").body)["id"]
    before = written(database)
    assert problem(ask("DELETE", "/datasets/flights"), 409, "subject_busy")["job"] == job
    assert written(database) == before

    ask("DELETE", f"/publications/{job}")
    assert ask("DELETE", "/datasets/flights").status_code == 204


def test_what_nobody_defined_cannot_be_deleted(ask):
    problem(ask("DELETE", "/datasets/fly"), 404, "not_found")


def test_a_deletion_and_a_publication_that_race_never_both_win(ask, database, engine, dsn, queues):
    """The publication has looked at the dataset and isn't accepted yet; then the other way round."""
    other = Database(dsn)
    publisher = Engine(other, pipelines.PIPELINES, engine.settings, queues)
    looked, go_on = Event(), Event()

    def slowly(tx):
        assert not registry.is_deleted(tx, "flights")
        looked.set()
        assert go_on.wait(30)
        return publisher.accept("publication", pipelines.publication.pin(tx, {"dataset": "flights"}), tx=tx).job

    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(publisher.once, None, slowly)
        assert looked.wait(30)
        busy = problem(ask("DELETE", "/datasets/flights"), 503, "unavailable")
        assert "busy" in busy["detail"]
        go_on.set()
        job = accepted.result(30)
    problem(ask("DELETE", "/datasets/flights"), 409, "subject_busy")

    engine.cancel(job.id)
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as tx:
            registry.take_dataset(tx, "flights")
            registry.delete_dataset(tx, "flights")
            racing = pool.submit(pipelines.publish, publisher, "flights")
            while not tx.run("select 1 from pg_locks where not granted") and not racing.done():
                pass
        with pytest.raises(Refusal) as refused:
            racing.result(30)
    assert refused.value.code == "gone"
    other.close()


def test_a_publication_is_cancelled_by_its_publisher(ask, engine, clock):
    waiting = ask("POST", "/datasets/flights/publications").headers["Location"]
    cancelled = ask("DELETE", waiting)
    assert cancelled.status_code == 200
    assert json.loads(cancelled.body)["failure"]["code"] == "cancelled"
    assert ask("DELETE", waiting).body == cancelled.body

    owned = ask("POST", "/datasets/flights/publications").headers["Location"]
    job = UUID(owned.rpartition("/")[2])
    leased = engine.claim("work", job=job, ask=uuid4(), lease=timedelta(seconds=60))
    asked = ask("DELETE", owned)
    assert (asked.status_code, asked.headers["Location"], asked.headers["Retry-After"]) == (202, owned, "2")
    assert json.loads(asked.body)["status"] == "running"
    leased.fail("cancelled", {})
    assert ask("DELETE", owned).status_code == 200


def test_what_has_ended_is_not_cancelled(ask, database, engine, clock):
    done, failed = publish(database, engine, clock), fail(database, engine)
    before = written(database)
    for job in (done, failed):
        problem(ask("DELETE", f"/publications/{job}"), 409, "conflict")
    withdrawal = json.loads(ask("DELETE", "/datasets/flights/versions/1").body)["id"]
    problem(ask("DELETE", f"/publications/{withdrawal}"), 404)
    engine.cancel(UUID(withdrawal))
    outside = create_token(database, "roads", "publisher", "roads-*")
    problem(ask("DELETE", f"/publications/{done}", token=outside), 404)
    assert written(database)["dataset.version"] == before["dataset.version"]
