"""`leaseway load`: rows as a body or by way of an upload, and what is said of rows that don't fit."""

import json

import pytest

from chalicelib.cli import loading
from chalicelib.cli.remote import Refused
from chalicelib.datasets.definition import Definition
from chalicelib.pipelines.load import MAX_INLINE, MAX_UPLOAD

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
    checksum = {"x-amz-checksum-sha256": "signed="}
    upload = {"id": "u1", "url": f"{server.url}/bucket/uploads/u1?signature", "method": "PUT", "headers": checksum}
    server.tell(f"{POST}/uploads", upload, 201)
    server.tell("PUT /bucket/uploads/u1?signature")
    accepting(server, f"{POST}?upload=u1&format=csv&{encoding}".rstrip("&"))

    result = run("load", "trees", file(), *(("--encoding", "windows-1252") if encoding else ()))

    assert result.exit_code == 0, (result.output, server.asked)
    assert [asked[0] for asked in server.asked[:2]] == [f"{POST}/uploads", "PUT /bucket/uploads/u1?signature"]
    sha256 = "30c0097a2a0c669be16f7aeaecf9573f2539440c758cb2f126031cc430ed88b8"
    assert server.asked[0][1] == {"bytes": 12, "sha256": sha256}
    assert server.asked[1][1:] == (b"id,name\n1,x\n", None)  # the token stays at home
    assert server.checksums[1] == "signed="


@pytest.mark.parametrize(("answer", "said"), [(403, "was answered 403"), (NO_ANSWER, "Nobody answers")])
def test_an_upload_that_fails_is_said_and_nothing_is_loaded(server, run, file, monkeypatch, answer, said):
    monkeypatch.setattr(loading, "INLINE", 5)
    server.tell(f"{POST}/uploads", {"id": "u1", "url": f"{server.url}/put", "headers": {}}, 201)
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


def test_a_json_array_is_known_by_its_name_or_said(server, run, file):
    accepting(server)

    for path, *more in [(file('[{"id": 1}]', "trees.JSON"),), (file('[{"id": 1}]', "trees"), "--format", "json")]:
        assert run("load", "trees", path, *more).exit_code == 0
        assert server.media_types[-2] == "application/json"


def test_a_large_json_array_is_uploaded_line_by_line_as_it_is_written(server, run, file, monkeypatch):
    monkeypatch.setattr(loading, "INLINE", 5)
    server.tell(f"{POST}/uploads", {"id": "u1", "url": f"{server.url}/put", "headers": {}}, 201)
    server.tell("PUT /put")
    accepting(server, f"{POST}?upload=u1&format=jsonl")

    result = run("load", "trees", file(' [ {"v":\n 1.10, "t": "a]\\n"},\r\n{} ]\n', "trees.json"))

    assert result.exit_code == 0, (result.output, server.asked)
    assert server.asked[1][1] == b'{"v":  1.10, "t": "a]\\n"}\n{}\n'


@pytest.mark.parametrize("text", ['{"id": 1}', "[1", "[1,]", "[1] x", "", "[", "[1 2]"])
def test_what_is_no_json_array_is_not_uploaded(text):
    with pytest.raises(Refused, match="isn't one JSON array"):
        loading.lines(text.encode(), "utf-8")

    assert loading.lines(b"[ ]", "utf-8") == b""


@pytest.mark.parametrize("key", ["schlüssel", "mit leer", "", "x" * 256, "a\n"])
@pytest.mark.parametrize("command", ["load", "publish"])
def test_a_key_that_no_header_takes_is_refused_before_anything_is_sent(server, run, file, command, key):
    result = run(command, "trees", *([file()] if command == "load" else []), "--key", key)

    assert result.exit_code == 2
    assert "visible ASCII characters" in result.output
    assert not server.asked


def test_a_file_that_no_load_takes_is_refused_with_the_way_out(server, run, file, monkeypatch):
    monkeypatch.setattr(loading, "MOST", 5)

    result = run("load", "trees", file())

    assert (result.exit_code, server.asked) == (1, [])
    assert "trees.csv has 12 B, and a load takes at most 5 B. Split it" in result.output
    assert "leaseway source upload" in result.output


def test_the_server_takes_as_much():
    assert MAX_UPLOAD == 50_000_000
    assert (loading.MOST, loading.INLINE) == (MAX_UPLOAD, MAX_INLINE)


def failing(server, code, **details):
    why = {"code": code, "sentence": "No.", "details": details}
    server.tell(POST, status("REQUESTED", pipeline="load"), 202, Location=f"{server.url}/loads/{JOB}")
    server.tell(f"GET /loads/{JOB}", status("FAILED", pipeline="load", failure=why))


def test_bad_rows_of_an_upload_are_a_table_with_the_true_count(server, run, file):
    failing(server, "invalid_rows", rows=[{"row": 2, "column": "id", "reason": "missing"}], records=1234)

    result = run("load", "trees", file())

    assert "row  column  reason\n2    id      missing\nThese are the first 1 of 1,234 rows" in result.stdout
    assert "Error: No. [invalid_rows: records 1234]\n" in result.stderr


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("id,hö\n1,x\n", ("--encoding", "windows-1252")),
        ("id\t'hö'\n", ("--delimiter", "tab", "--quote", "'", "--encoding", "windows-1252")),
        ('"above\nall"\n"id",hö\n', ("--skip", "1", "--encoding", "windows-1252")),
        ('{"id": 1}\n{"id": 2, "hö": 3}\n', ("--format", "jsonl", "--encoding", "windows-1252")),
        ('[{"id": 1},\n {"id": 2,\n "hö": 3}]', ("--format", "json", "--encoding", "windows-1252")),
    ],
)
def test_an_unknown_column_of_an_upload_is_named(server, run, file, content, options):
    failing(server, "unknown_column", column=2, **({"record": 2} if "json" in "".join(options) else {}))
    server.tell(f"{POST}/uploads", {"id": "u1", "url": f"{server.url}/put", "headers": {}}, 201)
    server.tell("PUT /put")
    windows = "&encoding=windows-1252"
    for asked in (f"csv&delimiter=%09&quote=%27{windows}", f"csv&skip=1{windows}", f"csv{windows}", f"jsonl{windows}"):
        server.answers[f"{POST}?upload=u1&format={asked}"] = server.answers[POST]
    server.answers[f"{POST}?upload=u1&format=jsonl"] = server.answers[POST]  # an array goes as lines of UTF-8

    result = run("load", "trees", file(content), *options)

    assert "The column is 'hö'." in result.stderr, (result.output, server.asked)


@pytest.mark.parametrize("content", ["id\n1\n", 'id,"hö\n', "id,hö\n\xff\n"])
def test_a_file_that_was_changed_since_names_no_column(server, run, file, content):
    failing(server, "unknown_column", column=7)

    result = run("load", "trees", file(content))

    assert "Error: No. [unknown_column: column 7]\n" in result.stderr


def test_one_row_is_a_row():
    assert loading.told({"rows": 1, "inserted": 1, "updated": 0, "deleted": 0}).startswith("1 row, ")


def test_another_refusal_is_a_sentence(server, run, file):
    server.problem(POST, 409, "takes_no_loads", "The dataset takes no loads")

    assert "Error: The dataset takes no loads" in run("load", "trees", file()).output


def test_the_definition_of_the_airports_is_valid_and_has_a_key():
    from importlib import resources

    text = (resources.files(loading.__package__) / "airports.json").read_text(encoding="utf-8")
    definition = Definition.parse(json.loads(text))

    assert definition.key == ["faa"]
    assert definition.source == loading.AIRPORTS
