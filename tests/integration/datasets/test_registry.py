"""The registry: revisions that never change, versions without gaps, one at a time."""

import threading
from datetime import UTC, datetime
from itertools import pairwise
from uuid import uuid4

import psycopg
import pytest

from chalicelib.datasets import Invalid, registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Database

FLIGHTS = {
    "title": {"en": "Flights", "de": "Flüge"},
    "description": {"en": "Every flight of 2013.", "de": "Jeder Flug von 2013."},
    "keywords": {"en": ["aviation"], "de": ["Luftfahrt"]},
    "languages": ["en"],
    "publisher": {"name": {"en": "Open Data Office"}, "iri": "https://office.example.org/"},
    "contact": {"name": {"en": "Open data desk"}, "email": "opendata@example.org"},
    "themes": ["TRAN"],
    "licence": "CC0",
    "source": "flights",
    "columns": [{"name": "year", "type": "integer"}],
}


def define(database, dataset="flights", **changes):
    return registry.put_definition(database, dataset, Definition.parse(FLIGHTS | changes))


@pytest.fixture
def source(database):
    registry.add_connection(database, "office", "LEASEWAY_SECRET_OFFICE")
    return registry.register_source(database, "flights", "office", relation="nyc.flights", query=None)


def add_version(sql, number, **changes):
    registry.add_version(
        sql,
        **{
            "dataset": "flights",
            "number": number,
            "job": uuid4(),
            "fence": number,
            "definition": 1,
            "source": "flights",
            "source_revision": 1,
            "issued_at": datetime(2026, 1, number, tzinfo=UTC),
            "records": 336_776,
            "files": [{"format": "csv", "key": "k"}],
            "documents": {"nt": "<a> <b> <c> .\n"},
            "report": {"conforms": True},
            "triples": 1,
        }
        | changes,
    )


def test_a_connection_keeps_the_name_of_its_secret_and_may_get_another(database):
    registry.add_connection(database, "office", "LEASEWAY_SECRET_OLD")
    registry.add_connection(database, "office", "LEASEWAY_SECRET_OFFICE")

    assert [(c["name"], c["secret"]) for c in registry.connections(database)] == [("office", "LEASEWAY_SECRET_OFFICE")]
    assert registry.connection(database, "office")["secret"] == "LEASEWAY_SECRET_OFFICE"
    assert registry.connection(database, "home") is None


@pytest.mark.parametrize(
    ("name", "secret", "field"),
    [("Office", "LEASEWAY_SECRET_A", "name"), ("", "LEASEWAY_SECRET_A", "name"), ("office", "PGPASSWORD", "secret")],
)
def test_a_connection_with_a_bad_name_or_any_variable_as_secret_is_refused(database, name, secret, field):
    with pytest.raises(Invalid) as raised:
        registry.add_connection(database, name, secret)

    assert [fault.field for fault in raised.value.faults] == [field]


def test_a_source_registered_again_is_its_next_revision_unless_it_is_the_same(database, source):
    def register(relation=None, query=None):
        return registry.register_source(database, "flights", "office", relation=relation, query=query)

    assert source == register("nyc.flights") == 1
    assert register(query="select 1 as year;\n") == 2
    assert register(query="select 1 as year") == 2
    assert register("nyc.flights") == 3  # as it was at first, but the newest said something else

    assert registry.source(database, "flights")["revision"] == 3
    assert registry.source(database, "flights", 2)["query"] == "select 1 as year"
    assert registry.source(database, "flights", 1)["relation"] == "nyc.flights"
    assert registry.source(database, "fligths") is None
    assert [(s["name"], s["revision"]) for s in registry.sources(database)] == [("flights", 3)]


@pytest.mark.parametrize(
    ("name", "connection", "relation", "query", "fields"),
    [
        ("Flights", "office", "a.b", None, ["name"]),
        ("flights", "home", "a.b", None, ["connection"]),
        ("flights", "office", None, None, ["relation"]),
        ("flights", "office", "a.b", "select 1", ["relation"]),
        ("flights", "office", " ", None, ["relation"]),
        ("flights", "office", None, ";", ["query"]),
    ],
)
def test_a_source_that_names_nothing_is_refused(database, source, name, connection, relation, query, fields):
    with pytest.raises(Invalid) as raised:
        registry.register_source(database, name, connection, relation=relation, query=query)

    assert [fault.field for fault in raised.value.faults] == fields


def test_a_definition_put_again_is_its_next_revision_unless_it_is_the_same(database):
    assert define(database) == (1, True)
    assert define(database) == (1, False)
    assert define(database, licence="CC_BY_4_0") == (2, True)
    assert define(database) == (3, True)

    newest = registry.definition(database, "flights")
    assert (newest["revision"], newest["etag"]) == (3, Definition.parse(FLIGHTS).etag)
    assert Definition.parse(newest["body"]) == Definition.parse(FLIGHTS)
    assert registry.definition(database, "flights", 2)["body"]["licence"] == "CC_BY_4_0"
    assert registry.definition(database, "roads") is None


def test_a_dataset_with_a_bad_id_is_refused(database):
    with pytest.raises(Invalid):
        define(database, dataset="Flights!")


def test_many_at_once_make_one_revision_of_each_content(dsn, database):
    registry.add_connection(database, "office", "LEASEWAY_SECRET_OFFICE")
    start = threading.Barrier(8)
    revisions = []

    def put(n):
        own = Database(dsn)
        start.wait()
        revision, created = define(own, licence="CC0" if n % 2 else "CC_BY_4_0")
        registry.register_source(own, "flights", "office", relation=f"nyc.flights{n % 2}", query=None)
        revisions.append((revision, created))
        own.close()

    threads = [threading.Thread(target=put, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    made = sorted(revision for revision, created in revisions if created)
    assert made == list(range(1, len(made) + 1))
    bodies = [registry.definition(database, "flights", n)["etag"] for n in made]
    assert all(one != next_one for one, next_one in pairwise(bodies))
    assert len(revisions) == 8


def test_versions_count_up_without_gaps_and_the_newest_is_current(database, source):
    define(database)
    add_version(database, 1)
    add_version(database, 2, records=7)

    for number in (2, 4):
        with pytest.raises(LookupError):
            add_version(database, number)

    assert [version["number"] for version in registry.versions(database, "flights")] == [2, 1]
    assert "documents" not in registry.versions(database, "flights")[0]
    assert registry.version(database, "flights", 2)["records"] == 7
    assert registry.version(database, "flights", 1)["documents"] == {"nt": "<a> <b> <c> .\n"}
    assert registry.version(database, "flights", 3) is None
    assert [(e["dataset_id"], e["number"]) for e in registry.current_entries(database)] == [("flights", 2)]
    locked = registry.lock_dataset(database, "flights")
    assert (locked["last_version"], locked["current_version"]) == (2, 2)


def test_one_job_makes_one_version(database, source):
    define(database)
    job = uuid4()
    add_version(database, 1, job=job)

    with pytest.raises(psycopg.errors.UniqueViolation):
        add_version(database, 2, job=job)

    assert registry.lock_dataset(database, "flights")["last_version"] == 1


def test_a_dataset_without_versions_is_not_in_the_catalogue(database):
    define(database)

    assert registry.current_entries(database) == []


def test_who_holds_the_dataset_keeps_out_the_next_but_not_a_new_definition(dsn, database):
    define(database)
    other = Database(dsn)
    other.run("set lock_timeout = '50ms'")

    with database.transaction() as tx:
        registry.lock_dataset(tx, "flights")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            registry.lock_dataset(other, "flights")
        assert define(other, licence="CC_BY_4_0") == (2, True)

    assert registry.lock_dataset(other, "flights")["id"] == "flights"
    other.close()


def test_a_dataset_that_is_not_there_cannot_be_locked(database):
    with pytest.raises(LookupError):
        registry.lock_dataset(database, "nowhere")


FILE = {"key": "sources/trees/1.csv", "bytes": 1, "sha256": "1", "records": 1, "dialect": {}, "columns": []}


def test_a_file_is_a_source_without_a_connection_and_has_revisions_as_others_have(database, source):
    assert registry.register_file(database, "trees", FILE) == 1
    assert registry.register_file(database, "trees", FILE) == 1
    assert registry.register_file(database, "trees", FILE | {"sha256": "2"}) == 2
    assert registry.register_source(database, "trees", "office", relation="open.trees", query=None) == 3
    assert registry.register_file(database, "trees", FILE) == 4

    newest = registry.source(database, "trees")
    assert (newest["file"], newest["connection"], newest["relation"], newest["query"]) == (FILE, None, None, None)
    assert registry.source(database, "trees", 3)["file"] is None
    assert {s["name"]: s["file"] for s in registry.sources(database)} == {"flights": None, "trees": FILE}


def test_a_file_of_a_bad_name_or_without_what_it_must_say_is_refused(database):
    with pytest.raises(Invalid):
        registry.register_file(database, "Trees", FILE)
    for name in FILE:
        with pytest.raises(psycopg.errors.CheckViolation):
            registry.register_file(database, "trees", {k: v for k, v in FILE.items() if k != name})


def test_the_datasets_of_a_source_are_found_by_their_newest_definition(database, source):
    define(database, "flights")
    define(database, "roads")
    define(database, "roads", source="roads")
    define(database, "air", source="roads")
    define(database, "air")
    define(database, "rail")
    registry.delete_dataset(database, "rail")

    assert list(registry.definitions_of(database, "flights")) == ["air", "flights"]
