"""The API describes itself: every route, what it takes, what it gives; and a page that needs nothing from elsewhere."""

import json
import re

import pytest

from chalicelib.api.openapi import Changes, DefinitionAnswer, ProblemDocument, Status
from chalicelib.codes import PROBLEMS

from .seeding import DEFINITION, call
from .test_rights import CATALOG


@pytest.fixture
def described(http):
    answered = call(http, "GET", "/openapi.json")
    assert answered.headers["Content-Type"] == "application/json"
    return json.loads(answered.body)


def operations(described):
    return [(method, path, what) for path, item in described["paths"].items() for method, what in item.items()]


def test_it_has_exactly_the_routes_of_the_app(app, described):
    of_the_app = {(m.lower(), path) for path, methods in app.routes.items() for m in methods if m != "HEAD"}

    assert {(method, path) for method, path, _ in operations(described)} == of_the_app


def test_it_is_whole(described):
    assert described["openapi"] == "3.1.0"
    found = operations(described)
    assert len({what["operationId"] for _, _, what in found}) == len(found)
    for method, path, what in found:
        parts = [each["name"] for each in what["parameters"] if each["in"] == "path"]
        assert parts == re.findall(r"\{(\w+)\}", path), (method, path)
        assert what["summary"].endswith((".", ":")) or what["summary"], path
        assert [status for status in what["responses"] if status != "default"], path
        assert ("security" in what) is (what.get("x-role") is not None)
    references = re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(described))
    assert set(references) <= set(described["components"]["schemas"])
    assert {"Definition", "Status", "ProblemDocument", "ScheduleBody"} <= set(references)


def test_the_parameters_are_those_that_the_routes_know(http, office, described):
    names = {"dataset": "flights", "number": "1", "name": "flights.csv"}
    for method, path, what in operations(described):
        if "security" not in what:
            continue  # public addresses take whatever others add to a link
        job = office.failed if "failures" in path else office.withdrawal if "withdrawals" in path else office.active
        asked = f"{path.format(**names, job=job)}?unheard-of=1"
        refused = json.loads(call(http, method.upper(), asked, office.tokens["operator"]).body)
        known = refused["detail"].rpartition("known: ")[2].rstrip(".")
        declared = [each["name"] for each in what["parameters"] if each["in"] == "query"]
        assert set(known.split(", ")) == set(declared or ["none"]), (method, path)


def test_a_header_is_required_where_nothing_is_done_without_it(described):
    needed = [
        (path, each["name"])
        for _, path, what in operations(described)
        for each in what["parameters"]
        if each["in"] == "header" and each["required"]
    ]
    assert needed == [("/datasets/{dataset}/loads", "Idempotency-Key")]


def test_a_status_and_a_problem_are_what_it_says(http, office, described):
    for path in (
        f"/publications/{office.active}",
        f"/publications/{office.failed}",
        f"/withdrawals/{office.withdrawal}",
    ):
        Status.model_validate_json(call(http, "GET", path, office.tokens["operator"]).body)
    for path, model, body in (
        ("/datasets/flights/definition?dry_run=true", DefinitionAnswer, DEFINITION | {"frequency": "DAILY"}),
        ("/datasets/flights/definition", DefinitionAnswer, DEFINITION),
        ("/internal/catalog?dry_run=true", Changes, CATALOG),
    ):
        model.model_validate_json(call(http, "PUT", path, office.tokens["operator"], body).body)
    problem = json.loads(call(http, "GET", "/publications/1", office.tokens["operator"]).body)
    assert ProblemDocument.model_validate(problem).code == "not_found"
    assert set(described["components"]["schemas"]["Status"]["required"]) == set(Status.model_fields)


def test_each_form_that_it_declares_is_given(http, office, described):
    files = {"application/csvm+json": "flights.csv-metadata.json", "application/schema+json": "flights.schema.json"}
    for method, path, what in operations(described):
        forms = what["responses"].get("200", {}).get("content", {})
        if method == "get" and "security" not in what:
            for form in forms:
                asked = path.format(dataset="flights", number="1", name=files.get(form))
                answered = call(http, "GET", asked, accept=form)
                assert answered.status_code == 200, (asked, form)
                assert answered.headers["Content-Type"].partition(";")[0] == form, asked
        else:
            assert list(forms) in ([], ["application/json"]), path


def test_each_answer_in_json_has_a_schema(described):
    rdf_or_itself = {"/catalog", "/datasets/{dataset}", "/openapi.json"}
    for method, path, what in operations(described):
        for said in what["responses"].values():
            schema = said.get("content", {}).get("application/json", {}).get("schema")
            assert schema is None or "$ref" in schema or path in rdf_or_itself, (method, path)


def test_the_page_shows_every_route_and_code_and_runs_nothing(http, described):
    answered = call(http, "GET", "/docs")

    text = answered.body.decode()
    assert answered.headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answered.headers["Content-Security-Policy"]
    assert not re.search(
        r"<script|<link|<img|src=|url\(|@import|https?://(?!localhost)", text.partition("<h1>Schemas")[0]
    )
    for method, path, _ in operations(described):
        assert f"<code>{method.upper()}</code> {path}<" in text
    for code in PROBLEMS:
        assert f"<code>{code}</code>" in text
