"""Definitions and schedules: put, read, refused with the field named."""

import json

import pytest

from chalicelib.datasets import registry
from chalicelib.db import Database
from chalicelib.security import create_token
from tests.conftest import PUBLIC_URL

from .seeding import DEFINITION, call, define, problem, publish, register_source, tokens, written

ADDRESS = "/datasets/flights/definition"
SCHEDULE = "/datasets/flights/schedule"


@pytest.fixture
def ask(http, database):
    """Requests of the publisher; the source is registered."""
    register_source(database)
    token = tokens(database)["publisher"]

    def asking(method, path, body=None, **headers):
        return call(http, method, path, token, body, **headers)

    return asking


def test_a_definition_is_created_changed_and_put_again_without_effect(ask, database):
    created = ask("PUT", ADDRESS, DEFINITION)
    again = ask("PUT", ADDRESS, dict(reversed(DEFINITION.items())))
    changed = ask("PUT", ADDRESS, DEFINITION | {"licence": "CC-BY 4.0"})
    back = ask("PUT", ADDRESS, DEFINITION)

    revisions = [(a.status_code, json.loads(a.body)["revision"]) for a in (created, again, changed, back)]
    assert revisions == [(201, 1), (200, 1), (200, 2), (200, 3)]
    assert created.headers["Location"] == PUBLIC_URL + ADDRESS
    assert created.headers["Etag"] == back.headers["Etag"] != changed.headers["Etag"]


def test_the_definition_is_read_as_it_was_put(ask):
    put = ask("PUT", ADDRESS, DEFINITION)

    read = ask("GET", ADDRESS)

    body = json.loads(read.body)
    assert {name: body[name] for name in DEFINITION} == DEFINITION
    assert read.headers["Etag"] == put.headers["Etag"]
    assert ask("GET", ADDRESS, if_none_match=read.headers["Etag"]).status_code == 304
    assert json.loads(ask("PUT", ADDRESS, json.loads(read.body)).body)["revision"] == 1


def test_a_dry_run_names_what_would_change_and_changes_nothing(ask, database):
    new = json.loads(ask("PUT", f"{ADDRESS}?dry_run=true", DEFINITION).body)
    assert new["revision"] is None
    assert "title" in new["changes"]
    ask("PUT", ADDRESS, DEFINITION)
    before = written(database)

    columns = [*DEFINITION["columns"], {"name": "gate", "type": "text"}]
    changed = ask("PUT", f"{ADDRESS}?dry_run=true", DEFINITION | {"columns": columns, "licence": "CC_BY_4_0"})

    assert json.loads(changed.body) == {
        "dataset": "flights",
        "revision": 1,
        "etag": ask("GET", ADDRESS).headers["Etag"],
        "changes": ["licence", "columns.gate"],
        "differences": [
            {"field": "licence", "from": "CC0", "to": "CC_BY_4_0"},
            {"field": "columns.gate", "from": None, "to": {"name": "gate", "type": "text"}},
        ],
    }
    assert json.loads(ask("PUT", f"{ADDRESS}?dry_run=true", DEFINITION).body)["changes"] == []
    problem(ask("PUT", f"{ADDRESS}?dry_run=true", DEFINITION | {"source": "elsewhere"}), 422, "unknown_source")
    problem(ask("PUT", f"{ADDRESS}?dry_run=perhaps", DEFINITION), 400, "bad_parameter", "dry_run")
    assert written(database) == before


def test_a_cadence_is_checked_before_there_is_a_dataset(ask, database):
    before = written(database)
    checked = ask("PUT", f"{SCHEDULE}?dry_run=true", {"every": "day", "at": "02:00"})
    assert json.loads(checked.body)["cadence"] == {"every": "day", "at": "02:00", "zone": "UTC"}
    problem(ask("PUT", f"{SCHEDULE}?dry_run=true", {"every": "day", "at": "26:00"}), 422, "invalid_schedule")
    assert written(database) == before


def test_every_fault_of_a_definition_is_named(ask, database):
    before = written(database)

    refused = problem(
        ask("PUT", ADDRESS, DEFINITION | {"title": {}, "columns": [{"name": "a", "type": "money"}], "surplus": 1}),
        422,
        "invalid_definition",
    )

    assert {e["field"] for e in refused["errors"]} == {"title", "columns[0].type", "surplus"}
    assert refused["field"] == refused["errors"][0]["field"]
    assert written(database) == before


def test_a_source_nobody_registered_is_refused_with_the_nearest_one(ask, database):
    before = written(database)

    refused = problem(ask("PUT", ADDRESS, DEFINITION | {"source": "fligths"}), 422, "unknown_source", "source")

    assert "Did you mean 'flights'?" in refused["detail"]
    assert "leaseway source register" in refused["detail"]
    assert written(database) == before


def test_no_sql_and_no_connection_comes_in_by_a_definition(ask):
    for name in ("query", "sql", "dsn", "connection", "relation"):
        problem(ask("PUT", ADDRESS, DEFINITION | {name: "select 1"}), 422, "invalid_definition", name)
    problem(ask("PUT", ADDRESS, DEFINITION | {"source": "public.flights; drop table x"}), 422, None, "source")


def test_a_dataset_nobody_defined_is_not_found(ask):
    for path in ("/datasets/fly/definition", "/datasets/fly/status", "/datasets/fly/schedule"):
        problem(ask("GET", path), 404, "not_found")
    problem(ask("PUT", "/datasets/fly/schedule", {"every": "day", "at": "02:00"}), 404, "not_found")
    problem(ask("DELETE", "/datasets/fly/schedule"), 404, "not_found")


def test_a_schedule_is_set_changed_listed_and_deleted(ask, database):
    define(database)
    set_ = json.loads(ask("PUT", SCHEDULE, {"every": "day", "at": "02:00", "zone": "Europe/Berlin"}).body)
    assert set_["cadence"] == {"every": "day", "at": "02:00", "zone": "Europe/Berlin"}
    assert set_["next_due_at"] == "2026-03-03T01:00:00.000Z"
    assert set_["links"]["self"] == PUBLIC_URL + SCHEDULE

    changed = json.loads(ask("PUT", SCHEDULE, {"every": "month", "on": 31, "at": "02:00"}).body)
    assert changed["next_due_at"] == "2026-03-31T02:00:00.000Z"
    assert json.loads(ask("GET", SCHEDULE).body) == changed
    assert json.loads(ask("GET", "/schedules").body) == {"schedules": [changed]}

    assert ask("DELETE", SCHEDULE).status_code == 204
    problem(ask("GET", SCHEDULE), 404)
    assert json.loads(ask("GET", "/schedules").body) == {"schedules": []}


def test_schedules_outside_the_tokens_pattern_are_not_listed(ask, database, http):
    define(database)
    ask("PUT", SCHEDULE, {"every": "day", "at": "02:00"})

    outside = call(http, "GET", "/schedules", create_token(database, "roads", "publisher", "roads-*"))

    assert json.loads(outside.body) == {"schedules": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "every"),
        ({"every": "hour", "at": "02:00"}, "every"),
        ({"every": "day", "at": "25:00"}, "at"),
        ({"every": "day", "at": "2:00"}, "at"),
        ({"every": "day", "at": 200}, "at"),
        ({"every": "day", "at": "02:00", "zone": "Mars/Olympus"}, "zone"),
        ({"every": "day", "at": "02:00", "zone": "../../etc/passwd"}, "zone"),
        ({"every": "day", "at": "02:00", "zone": ["UTC"]}, "zone"),
        ({"every": "day", "at": "02:00", "on": 1}, "on"),
        ({"every": "week", "at": "02:00"}, "on"),
        ({"every": "week", "at": "02:00", "on": "someday"}, "on"),
        ({"every": "month", "at": "02:00", "on": 0}, "on"),
        ({"every": "month", "at": "02:00", "on": 32}, "on"),
        ({"every": "month", "at": "02:00", "on": 10**30}, "on"),
        ({"every": "month", "at": "02:00", "on": True}, "on"),
        ({"every": "month", "at": "02:00", "on": 1.5}, "on"),
        ({"every": "day", "at": "02:00", "pipeline": "export"}, "pipeline"),
    ],
)
def test_a_schedule_that_is_none_is_refused_with_its_field(ask, database, body, field):
    define(database)
    before = written(database)

    refused = problem(ask("PUT", SCHEDULE, body), 422, "invalid_schedule")

    fields = {error["field"].partition(".")[0] for error in refused.get("errors", [refused])}
    assert field in fields
    assert written(database) == before


def test_who_changes_a_definition_may_name_the_one_it_is_to_replace(ask, database):
    first = ask("PUT", ADDRESS, DEFINITION)
    etag = first.headers["Etag"]
    problem(ask("PUT", "/datasets/flo/definition", DEFINITION, if_match=etag), 412, "precondition_failed")

    changed = ask("PUT", ADDRESS, DEFINITION | {"licence": "CC-BY 4.0"}, if_match=f'"x", {etag}')
    assert (changed.status_code, json.loads(changed.body)["revision"]) == (200, 2)
    before = written(database)
    for stale in (etag, f"W/{changed.headers['Etag']}", "nonsense"):
        problem(ask("PUT", ADDRESS, DEFINITION, if_match=stale), 412, "precondition_failed")
    assert written(database) == before
    assert ask("PUT", ADDRESS, DEFINITION, if_match=changed.headers["Etag"]).status_code == 200


def test_a_star_is_whatever_there_is_and_without_anything_it_does_not_hold(ask, database):
    """RFC 9110, 13.1.1 and 13.1.2."""
    changed = DEFINITION | {"licence": "CC-BY 4.0"}
    before = written(database)
    for dry_run in ("", "?dry_run=true"):
        problem(ask("PUT", ADDRESS + dry_run, DEFINITION, if_match="*"), 412, "precondition_failed", "If-Match")
    assert written(database) == before

    assert ask("PUT", f"{ADDRESS}?dry_run=true", DEFINITION, if_none_match="*").status_code == 200
    made = ask("PUT", ADDRESS, DEFINITION, if_none_match="*")
    assert made.status_code == 201
    etag = made.headers["Etag"]
    before = written(database)
    for body in (DEFINITION, changed):
        for tags in ("*", etag, f'"x", W/{etag}'):
            for dry_run in ("", "?dry_run=true"):
                refused = ask("PUT", ADDRESS + dry_run, body, if_none_match=tags)
                problem(refused, 412, "precondition_failed", "If-None-Match")
    problem(ask("PUT", ADDRESS, changed, if_match=etag, if_none_match="*"), 412, "precondition_failed")
    assert written(database) == before

    assert json.loads(ask("PUT", ADDRESS, changed, if_match="*", if_none_match='"x"').body)["revision"] == 2
    assert json.loads(ask("PUT", ADDRESS, changed, if_match=" * ").body)["revision"] == 2


@pytest.fixture
def somebody_is_faster(dsn, monkeypatch):
    """Somebody else puts a definition, and commits, a moment before the next one that is put."""
    put, other = registry.put_definition, Database(dsn)

    def between(**definition):
        def in_between(tx, dataset, ours):
            monkeypatch.setattr(registry, "put_definition", put)
            define(other, **definition)
            return put(tx, dataset, ours)

        monkeypatch.setattr(registry, "put_definition", in_between)

    yield between
    other.close()


@pytest.mark.parametrize("theirs", [{}, {"frequency": "DAILY"}])
def test_of_two_who_create_a_definition_at_once_the_slower_one_is_told(ask, database, somebody_is_faster, theirs):
    somebody_is_faster(**theirs)

    problem(ask("PUT", ADDRESS, DEFINITION, if_none_match="*"), 412, "precondition_failed", "If-None-Match")

    assert registry.definition(database, "flights")["body"].get("frequency") == theirs.get("frequency")


def test_a_definition_that_comes_in_between_is_overwritten_only_where_any_may_be(ask, database, somebody_is_faster):
    etag = ask("PUT", ADDRESS, DEFINITION).headers["Etag"]
    somebody_is_faster(frequency="DAILY")
    assert json.loads(ask("PUT", ADDRESS, DEFINITION | {"frequency": "WEEKLY"}, if_match="*").body)["revision"] == 3
    ask("PUT", ADDRESS, DEFINITION)

    somebody_is_faster(frequency="DAILY")
    changed = DEFINITION | {"licence": "CC-BY 4.0"}
    problem(ask("PUT", ADDRESS, changed, if_match=etag), 412, "precondition_failed")
    assert registry.definition(database, "flights")["body"]["licence"] == DEFINITION["licence"]


@pytest.mark.parametrize("written_as", ["https://a.org/x https://b.org/y", "ttps://x.org/d", "Soon", "file:///etc/x"])
def test_OD_01_OD_04_a_bad_address_is_refused_with_its_field_and_the_catalogue_answers(
    ask, database, engine, clock, http, written_as
):
    """Two addresses in one field were a 500 for the whole catalogue; an unknown scheme, an address on our own host."""
    define(database)
    publish(database, engine, clock)
    before = written(database)

    for field in ("landing_page", "publisher.iri"):
        name, _, part = field.partition(".")
        value = DEFINITION[name] | {part: written_as} if part else written_as
        problem(ask("PUT", ADDRESS, DEFINITION | {name: value}), 422, "invalid_definition", field)
    assert written(database) == before

    answered = call(http, "GET", "/catalog.nt")
    assert answered.status_code == 200
    assert f"<{PUBLIC_URL}/datasets/flights>".encode() in answered.body
    assert written_as.encode() not in answered.body
