"""Who may do what: every route, asked by everyone who might ask."""

import re

import pytest

from .seeding import DEFINITION, call, problem, written

EVERYONE = ("nobody", "wrong", "outside", "reader", "publisher", "operator")
CADENCE = {"every": "day", "at": "02:00", "zone": "Europe/Berlin"}

CATALOG = {
    "title": {"en": "Open data"},
    "description": {"en": "All that is open."},
    "publisher": {"name": {"en": "Open Data Office"}, "iri": "https://office.example.org/"},
    "licence": "CC0",
    "homepage": "https://office.example.org/data",
}

PUBLIC = (200, 200, 200, 200, 200, 200)
READERS = (401, 401, 404, 200, 200, 200)
OPERATORS = (401, 401, 403, 403, 403, 200)

ROUTES = [
    ("GET", "/catalog", None, PUBLIC),
    ("GET", "/catalog.nt", None, PUBLIC),
    ("GET", "/datasets/flights", None, PUBLIC),
    ("GET", "/datasets/flights.jsonld", None, PUBLIC),
    ("GET", "/datasets/flights/versions", None, PUBLIC),
    ("GET", "/datasets/flights/versions/1", None, PUBLIC),
    ("GET", "/datasets/flights/versions/1/files/flights.csv", None, (307,) * 6),
    ("HEAD", "/datasets/flights/versions/1/files/flights.csv", None, PUBLIC),
    ("GET", "/datasets/flights/files/flights.csv", None, (307,) * 6),
    ("HEAD", "/datasets/flights/files/flights.csv", None, PUBLIC),
    ("GET", "/health", None, PUBLIC),
    ("GET", "/openapi.json", None, PUBLIC),
    ("GET", "/docs", None, PUBLIC),
    ("GET", "/datasets/flights/definition", None, READERS),
    ("GET", "/datasets/flights/status", None, READERS),
    ("GET", "/publications/{active}", None, READERS),
    ("GET", "/datasets/flights/schedule", None, READERS),
    ("GET", "/schedules", None, (401, 401, 200, 200, 200, 200)),
    ("PUT", "/datasets/flights/definition", "definition", (401, 401, 404, 403, 200, 200)),
    ("PUT", "/datasets/new/definition", "definition", (401, 401, 404, 403, 404, 201)),
    ("POST", "/datasets/flights/publications", None, (401, 401, 404, 403, 202, 202)),
    ("DELETE", "/datasets/flights/versions/1", None, (401, 401, 404, 403, 409, 409)),  # a publication is active
    ("GET", "/withdrawals/{withdrawal}", None, READERS),
    ("POST", "/datasets/flights/loads", None, (401, 401, 404, 403, 415, 415)),  # what is taken: test_loads.py
    ("POST", "/datasets/flights/loads/uploads", {"bytes": 1}, (401, 401, 404, 403, 409, 409)),  # it has no key
    ("GET", "/loads/{active}", None, (401, 401, 404, 404, 404, 404)),  # nobody's but its owner's
    ("DELETE", "/loads/{active}", None, (401, 401, 404, 403, 404, 404)),
    ("GET", "/datasets", None, (401, 401, 200, 200, 200, 200)),
    ("DELETE", "/datasets/flatlands", None, (401, 401, 404, 403, 204, 410)),  # the publisher has deleted it
    ("DELETE", "/publications/{active}", None, (401, 401, 404, 403, 200, 200)),
    ("PUT", "/datasets/flights/schedule", CADENCE, (401, 401, 404, 403, 200, 200)),
    ("DELETE", "/datasets/flights/schedule", None, (401, 401, 404, 403, 204, 404)),  # the publisher has deleted it
    ("POST", "/refreshes", None, (401, 401, 403, 403, 403, 202)),
    ("GET", "/refreshes", None, OPERATORS),
    ("GET", "/refreshes/{refresh}", None, OPERATORS),
    ("PUT", "/refreshes/schedule", CADENCE, OPERATORS),
    ("GET", "/refreshes/schedule", None, (401, 401, 403, 403, 403, 404)),  # there is none
    ("DELETE", "/refreshes/schedule", None, (401, 401, 403, 403, 403, 404)),
    ("PUT", "/internal/refresh", {"rollback": "latest"}, (401, 401, 403, 403, 403, 422)),
    ("DELETE", "/internal/refresh", None, (401, 401, 403, 403, 403, 204)),
    ("GET", "/internal/jobs", None, OPERATORS),
    ("GET", "/internal/jobs/{active}", None, OPERATORS),
    ("POST", "/internal/jobs/{active}/cancel", None, OPERATORS),
    ("GET", "/internal/failures", None, OPERATORS),
    ("GET", "/internal/failures/{failed}", None, OPERATORS),
    ("POST", "/internal/failures/{failed}/requeue", None, (401, 401, 403, 403, 403, 202)),
    ("DELETE", "/internal/failures/{failed}", None, (401, 401, 403, 403, 403, 204)),
    ("PUT", "/internal/catalog", CATALOG, OPERATORS),
    ("GET", "/internal/catalog", None, OPERATORS),
    ("PUT", "/internal/pause", {"pipeline": "publication", "hours": 2}, OPERATORS),
    ("DELETE", "/internal/pause?pipeline=refresh", None, (401, 401, 403, 403, 403, 204)),
]


@pytest.mark.parametrize(("method", "path", "body", "statuses"), ROUTES, ids=[f"{r[0]} {r[1]}" for r in ROUTES])
def test_every_route_by_everyone(http, database, office, method, path, body, statuses):
    path = path.format(active=office.active, failed=office.failed, withdrawal=office.withdrawal, refresh=office.refresh)
    body = DEFINITION if body == "definition" else body
    for who, status in zip(EVERYONE, statuses, strict=True):
        before = written(database)
        answered = call(http, method, path, office.tokens.get(who), body)
        assert answered.status_code == status, (who, answered.body)
        if status >= 400:
            assert written(database) == before, who
            problem(answered, status)
        if status == 401:
            assert answered.headers["WWW-Authenticate"].startswith("Bearer")
        if statuses[0] in (200, 307):
            assert answered.headers["Access-Control-Allow-Origin"] == "*"
        elif status < 400:
            assert answered.headers["Cache-Control"].startswith("private")


def test_the_table_has_every_route(app):
    asked = {(method, path.partition("?")[0]) for method, path, _, _ in ROUTES}
    for path, methods in app.routes.items():
        pattern = re.sub(r"\{\w+\}", "[^/]+", path.replace(".", r"\."))
        if not path.startswith("/catalog."):
            for method in set(methods) - {"HEAD"}:
                assert any(m == method and re.fullmatch(pattern, p) for m, p in asked), f"{method} {path}"
