"""Whatever is sent, the answer is a problem document that names it, never a 500, and nothing is written."""

import json
import logging
import re

import psycopg
import pytest
from chalice.test import HTTPResponse

from chalicelib import pipelines
from chalicelib.datasets import registry
from chalicelib.db import Database, DatabaseAway

from .seeding import DEFINITION, call, problem, written

BODIES = {
    "not JSON": (b"{", 400),
    "a list": (b"[]", 400),
    "null": (b"null", 400),
    "a member twice": (b'{"a": 1, "a": 2}', 400),
    "NaN": (b'{"a": NaN}', 400),
    "a number out of range": (b'{"a": 1e999}', 400),
    "a number without end": (b'{"a": ' + b"9" * 5000 + b"}", 400),
    "a byte order mark": (b"\xef\xbb\xbf{}", 400),
    "Latin-1": ('{"ä": 1}'.encode("latin-1"), 400),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), 400),
    "NUL": (b'{"a": "\\u0000"}', 400),
    "half a surrogate pair": (b'{"a": "\\ud800"}', 400),
    "nested deeply": (b'{"a": ' + b"[" * 1000 + b"]" * 1000 + b"}", 400),
    "nested to the recursion limit": (b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
    "huge": (b'{"a": "' + b"x" * 2_000_000 + b'"}', 413),
    "a member that isn't known": (b'{"dsn": "postgresql://u:p@h/d"}', (400, 422)),
    "prototype pollution": (b'{"__proto__": {"role": "operator"}}', (400, 422)),
}
TAKING = [
    ("PUT", "/datasets/flights/definition"),
    ("POST", "/datasets/flights/publications"),
    ("PUT", "/datasets/flights/schedule"),
    ("PUT", "/refreshes/schedule"),
    ("POST", "/internal/jobs/{active}/cancel"),
    ("POST", "/internal/failures/{failed}/requeue"),
    ("PUT", "/internal/pause"),
]
ODD = (
    "..",
    "%00",
    "%2e%2e",
    "ü",
    "x" * 3000,
    "'; drop table engine.job; --",
    "{id}",
    "☃",
    "1e3",
    "-1",
    "0",
    "None",
    "\u202e",
)


@pytest.fixture
def ask(http, office):
    """Requests of the operator, who may send anything anywhere."""

    def asking(method, path, body=None, **headers):
        path = path.format(active=office.active, failed=office.failed)
        return call(http, method, path, office.tokens["operator"], body, **headers)

    return asking


@pytest.mark.parametrize(("method", "path"), TAKING)
def test_a_bad_body_is_refused_and_nothing_is_written(ask, database, method, path):
    before = written(database)

    for name, (body, status) in BODIES.items():
        answered = ask(method, path, body)
        assert answered.status_code in (status if isinstance(status, tuple) else (status,)), (name, answered.body)
        document = problem(answered, answered.status_code)
        assert document["code"] not in ("internal_error", "not_found"), name
        assert "postgresql://" not in answered.body.decode()
    for content_type in ("text/plain", "application/xml", "application/json; charset=latin-1", "*/*"):
        problem(ask(method, path, b'{"a": 1}', content_type=content_type), 415, "unsupported_media_type")

    assert written(database) == before


@pytest.mark.parametrize(
    "value", [None, 1, -1, 1.5, True, "", "x", [], ["x"], {}, {"en": None}, {"": ""}, 10**30, "💥"]
)
@pytest.mark.parametrize("member", DEFINITION)
def test_any_value_of_any_member_of_a_definition_is_taken_or_refused(http, office, database, member, value):
    answered = call(
        http, "PUT", "/datasets/flights/definition", office.tokens["publisher"], DEFINITION | {member: value}
    )

    assert answered.status_code in (200, 422), answered.body
    if answered.status_code == 422:
        assert problem(answered, 422)["field"].startswith(member)


@pytest.mark.parametrize("odd", ODD)
def test_an_odd_path_is_not_found(app, office, database, odd):
    before = written(database)

    for path, methods in app.routes.items():
        for part in re.findall(r"{(\w+)}", path):
            if part == "dataset" and odd in ("0", "1e3"):
                continue  # strange, but names
            parts = {"dataset": "flights", "number": "1", "name": "flights.csv", "job": "x"} | {part: odd}
            for method in methods:
                answered = as_the_gateway_calls(app, method, path, parts, office.tokens["operator"])
                problem(answered, 404, "not_found")

    assert written(database) == before


def as_the_gateway_calls(app, method, route, parts=None, token=""):
    """A request whose path's parts are whatever the caller wrote."""
    event = {
        "requestContext": {"httpMethod": method, "resourcePath": route},
        "headers": {"authorization": f"Bearer {token}"},
        "multiValueQueryStringParameters": None,
        "pathParameters": parts,
        "stageVariables": None,
        "body": None,
    }
    return HTTPResponse.create_from_dict(app(event, None))


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/internal/jobs?limit=0", "limit"),
        ("/internal/jobs?limit=-1", "limit"),
        ("/internal/jobs?limit=1e9", "limit"),
        ("/internal/jobs?limit=99999999999999999999", "limit"),
        ("/internal/jobs?limit=1&limit=2", "limit"),
        ("/internal/jobs?limit=", "limit"),
        ("/internal/jobs?after=1", "after"),
        ("/internal/jobs?after={{}}", "after"),
        ("/internal/jobs?status=dead", "status"),
        ("/internal/jobs?pipeline=x%00", "pipeline"),
        ("/internal/jobs?order=desc", "order"),
        ("/internal/failures?code=unheard_of", "code"),
        ("/internal/failures?pipeline='", "pipeline"),
        ("/datasets/flights/status?verbose=1", "verbose"),
        ("/datasets/flights/definition?revision=1", "revision"),
        ("/schedules?limit=1", "limit"),
    ],
)
def test_a_parameter_that_isnt_meant_is_refused_with_its_name(ask, path, field):
    problem(ask("GET", path), 400, "bad_parameter", field)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"pipeline": "x"}, "pipeline"),
        ({"pipeline": None}, "pipeline"),
        ({"pipeline": ["*"]}, "pipeline"),
        ({"hours": 0}, "hours"),
        ({"hours": -1}, "hours"),
        ({"hours": 169}, "hours"),
        ({"hours": 1e300}, "hours"),
        ({"hours": "2"}, "hours"),
        ({"hours": True}, "hours"),
        ({"until": "tomorrow"}, "until"),
    ],
)
def test_a_pause_that_is_none_is_refused_with_its_field(ask, database, body, field):
    before = written(database)
    problem(ask("PUT", "/internal/pause", body), 400, "bad_json", field)
    assert written(database) == before


def test_the_app_itself_refuses_with_problem_documents(app, http):
    answered = call(http, "DELETE", "/datasets/flights/versions")
    problem(answered, 405, "method_not_allowed")
    assert set(answered.headers["Allow"].split(", ")) == {"GET", "HEAD"}
    problem(call(http, "PATCH", "/health"), 405)

    problem(as_the_gateway_calls(app, "GET", "/nowhere"), 404, "not_found")


def test_a_defect_is_a_500_with_a_request_id_and_one_line_without_its_text(http, environment, capsys, caplog):
    def broken():
        raise RuntimeError("CANARY: the text of an exception, select * from secrets")

    environment.setattr(pipelines, "context", broken)
    with caplog.at_level(logging.DEBUG):
        answered = call(http, "GET", "/health")

    document = problem(answered, 500, "internal_error")
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["request_id"] for line in lines] == [document["request_id"]]
    assert lines[0]["exception"] == "RuntimeError"
    assert "CANARY" not in answered.body.decode() + json.dumps(lines) + caplog.text


def test_a_defect_outside_every_route_is_no_stack_trace_either(app, capsys, caplog):
    answered = as_the_gateway_calls(app, "GET", "/datasets/{dataset}", parts=None)

    problem(answered, 500, "internal_error")
    assert len(capsys.readouterr().out.splitlines()) == 1
    assert caplog.text == ""


@pytest.mark.parametrize("path", ["/health", "/datasets/flights", "/datasets/flights/status", "/internal/jobs"])
def test_the_database_being_away_is_503_with_a_time_to_come_back(http, office, database, environment, path):
    def away(*_, **__):
        raise DatabaseAway

    environment.setattr(database, "run", away)
    environment.setattr(database, "one", away)

    answered = call(http, "GET", path, office.tokens["operator"])

    assert answered.status_code == 503
    assert answered.headers["Retry-After"] == "5"
    assert b"database doesn't answer" in answered.body


@pytest.mark.parametrize("error", [psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled])
def test_a_database_that_is_busy_with_the_same_thing_is_503_too(http, office, environment, error):
    def busy(*_, **__):
        raise error

    environment.setattr(registry, "put_definition", busy)

    answered = call(http, "PUT", "/datasets/flights/definition", office.tokens["publisher"], DEFINITION)

    problem(answered, 503, "unavailable")
    assert answered.headers["Retry-After"] == "5"


def test_a_database_that_isnt_there_at_all_is_503(http, engine, environment):
    nowhere = Database("host=127.0.0.1 port=1 user=CANARY password=CANARY dbname=CANARY")
    context = pipelines.Context(engine.settings, nowhere, engine)
    environment.setattr(pipelines, "context", lambda: context)

    answered = call(http, "GET", "/datasets/flights")

    problem(answered, 503, "unavailable")
    assert b"CANARY" not in answered.body
