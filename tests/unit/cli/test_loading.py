"""`leaseway load`: rows as a body or by way of an upload, and what is said of rows that don't fit."""

import json

import pytest

from chalicelib.cli import loading
from chalicelib.datasets.definition import Definition

from .conftest import JOB, NO_ANSWER, status

LOADED = status("LOADED", pipeline="load", status="succeeded", version=None) | {
    "counts": {"rows": 3, "inserted": 2, "updated": 1, "deleted": 0}
}
POST = "POST /datasets/trees/loads"


@pytest.fixture
def file(tmp_path):
    def write(content="id,name\n1,x\n", name="trees.csv"):
        path = tmp_path / name
        path.write_bytes(content.encode("cp1252"))
        return str(path)

    return write


def accepting(server, request=POST):
    location = f"{server.url}/loads/{JOB}"
    server.tell(request, status("REQUESTED", pipeline="load"), 202, Location=location)
    server.tell(f"GET /loads/{JOB}", LOADED)


def test_a_file_is_the_body_and_the_counts_are_told(server, run, file):
    accepting(server)

    result = run("load", "trees", file())

    assert result.exit_code == 0, result.output
    assert "Loaded into trees: 3 rows, 2 inserted, 1 updated, 0 deleted." in result.output
    assert server.asked[0][:2] == (POST, b"id,name\n1,x\n")
    assert len(server.keys[0]) == 36


def test_json_lines_are_known_by_their_name_and_options_go_along(server, run, file):
    accepting(server, f"{POST}?mode=replace")
    result = run("load", "trees", file('{"id": 1}\n', "trees.jsonl"), "--replace", "--key", "mine", "--json")

    assert json.loads(result.stdout)["counts"]["rows"] == 3
    assert server.keys[0] == "mine"


@pytest.mark.parametrize(
    ("options", "query"),
    [
        (("--delimiter", "tab", "--quote", "none"), "delimiter=%09&quote="),
        (("--decimal", ",", "--date", "DD.MM.YYYY"), "decimal=%2C&date=DD.MM.YYYY"),
        (("--skip", "2", "--null", "NA"), "skip=2&null=NA"),
        (("--encoding", "utf-8"), ""),
    ],
)
def test_the_dialect_is_declared(server, run, file, options, query):
    accepting(server, f"{POST}?{query}".rstrip("?"))

    result = run("load", "trees", file(), *options)

    assert result.exit_code == 0, (result.output, server.asked)


@pytest.mark.parametrize("why", ["too many", "not UTF-8"])
def test_what_is_too_large_or_no_utf8_is_uploaded_first(server, run, file, monkeypatch, why):
    encoding = {"too many": "", "not UTF-8": "encoding=windows-1252&"}[why]
    if why == "too many":
        monkeypatch.setattr(loading, "INLINE", 5)
    upload = {"id": "u1", "url": f"{server.url}/bucket/uploads/u1?signature", "method": "PUT"}
    server.tell(f"{POST}/uploads", upload, 201)
    server.tell("PUT /bucket/uploads/u1?signature")
    accepting(server, f"{POST}?upload=u1&format=csv&{encoding}".rstrip("&"))

    result = run("load", "trees", file(), *(("--encoding", "windows-1252") if encoding else ()))

    assert result.exit_code == 0, (result.output, server.asked)
    assert [asked[0] for asked in server.asked[:2]] == [f"{POST}/uploads", "PUT /bucket/uploads/u1?signature"]
    assert server.asked[0][1] == {"bytes": 12}
    assert server.asked[1][1:] == (b"id,name\n1,x\n", None)  # the token stays at home


@pytest.mark.parametrize(("answer", "said"), [(403, "was answered 403"), (NO_ANSWER, "Nobody answers")])
def test_an_upload_that_fails_is_said_and_nothing_is_loaded(server, run, file, monkeypatch, answer, said):
    monkeypatch.setattr(loading, "INLINE", 5)
    server.tell(f"{POST}/uploads", {"id": "u1", "url": f"{server.url}/put"}, 201)
    server.tell("PUT /put", None, answer)

    result = run("load", "trees", file())

    assert result.exit_code == 1
    assert said in result.output
    assert len(server.asked) == 2


def test_rows_that_do_not_fit_are_listed(server, run, file):
    rows = [
        {"row": 2, "column": "id", "reason": "not_integer", "value": "x"},
        {"row": 3, "column": "id", "reason": "missing"},
    ]
    server.problem(POST, 422, "invalid_rows", "Rows can't be loaded", rows=rows, records=2)

    result = run("load", "trees", file())

    assert result.exit_code == 1
    assert "not_integer" in result.output
    assert "Error: Rows can't be loaded" in result.output


@pytest.mark.parametrize("code", ["invalid_rows", "unknown_column"])
def test_a_refusal_is_json_where_a_machine_asks(server, run, file, code):
    more = {"rows": [{"row": 2, "column": "id", "reason": "not_integer"}]} if code == "invalid_rows" else {"field": "x"}
    server.problem(POST, 422, code, "No", **more)

    result = run("load", "trees", file(), "--json")

    assert result.exit_code == 1
    problem = json.loads(result.stdout)
    assert (problem["code"], problem | more) == (code, problem)
    assert result.stderr.startswith("Error: No")


def test_a_load_that_fails_is_json_where_a_machine_asks(server, run, file):
    why = {"code": "invalid_rows", "sentence": "Rows can't be loaded.", "details": {"records": 1}}
    failed = status("FAILED", pipeline="load", failure=why)
    server.tell(POST, status("REQUESTED", pipeline="load"), 202, Location=f"{server.url}/loads/{JOB}")
    server.tell(f"GET /loads/{JOB}", failed)

    result = run("load", "trees", file(), "--json")

    assert (result.exit_code, json.loads(result.stdout)["failure"]) == (1, why)


def test_another_refusal_is_a_sentence(server, run, file):
    server.problem(POST, 409, "takes_no_loads", "The dataset takes no loads")

    assert "Error: The dataset takes no loads" in run("load", "trees", file()).output


def test_the_definition_of_the_airports_is_valid_and_has_a_key():
    from importlib import resources

    text = (resources.files(loading.__package__) / "airports.json").read_text(encoding="utf-8")
    definition = Definition.parse(json.loads(text))

    assert definition.key == ["faa"]
    assert definition.source == loading.AIRPORTS
