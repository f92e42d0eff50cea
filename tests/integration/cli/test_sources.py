"""`leaseway source check`, and `leaseway init` of a file: what an operator is told before anything is published."""

import json

import boto3
import psycopg
import pytest
from moto import mock_aws

from chalicelib.cli import yaml_files
from chalicelib.datasets import registry


@pytest.fixture
def trees(run, reader, admin_database_dsn):
    """A source `trees`, the table src.trees; it runs statements there as the administrator."""
    run("connection", "add", "src", "--secret", "LEASEWAY_SECRET_SRC")
    run("source", "register", "trees", "--connection", "src", "--table", "src.trees")
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        yield admin.execute


@pytest.fixture
def bucket(monkeypatch):
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    with mock_aws():
        boto3.client("s3").create_bucket(Bucket="leaseway-files")
        yield


def columns(said):
    return {column["name"]: column for column in said["columns"]}


def test_a_hundred_records_say_what_the_columns_are(run, trees):
    trees("alter table src.trees add height numeric(5,2), add planted date")
    trees(
        "insert into src.trees select n, case when n > 10 then 'x' end, 1.5, '2024-01-01'"
        " from generate_series(1, 300) n"
    )

    said = run("source", "check", "trees", "--json")

    assert said["records"] == 100
    assert {name: (c["found"], c["type"], c["nulls"]) for name, c in columns(said).items()} == {
        "id": ("int4", "integer", 0),
        "name": ("text", "text", 10),
        "height": ("numeric", "decimal", 0),
        "planted": ("date", "date", 0),
    }
    shown = run("source", "check", "trees")
    assert "100 records were read." in shown
    assert "declare it as" in shown


@pytest.mark.parametrize(
    ("text", "characters"),
    [
        ("B\u00c3\u00a4ume", ["U+00C3 U+00A4"]),  # UTF-8 read as windows-1252
        ("a \ufffd b", ["U+FFFD"]),
        ("a \x92 b", ["U+0092"]),  # windows-1252 read as ISO 8859-1
        ("a \x0b b", ["U+000B"]),
        ("B\u00e4ume: \u00c4\u00d6\u00dc, caf\u00e9 \u2013 \u201ealt\u201c \u20ac\n\t", []),
    ],
)
def test_suspect_characters_are_named(run, trees, text, characters):
    trees("insert into src.trees values (1, %s), (2, 'fine')", [text])

    name = columns(run("source", "check", "trees", "--json"))["name"]

    assert (name["characters"], name["suspects"]) == (characters, int(bool(characters)))
    if characters:
        assert characters[0].split()[0] in run("source", "check", "trees")


def test_a_type_that_is_not_published_is_refused(run, trees):
    trees("alter table src.trees add place point, add tags tsvector")
    trees("insert into src.trees values (1, 'x', '(1,2)', 'a')")

    said = run("source", "check", "trees", code=1)

    assert "! place is point, which isn't published" in said
    assert "! tags is tsvector, which isn't published" in said
    assert columns(run("source", "check", "trees", "--json", code=1))["place"]["type"] is None


def test_a_source_that_cannot_be_read_is_one_sentence(run, trees):
    trees("drop table src.trees")

    said = run("source", "check", "trees", code=1)

    assert "sqlstate 42P01" in said
    assert said.count("\n") == 1


def test_a_source_that_is_not_there_and_a_secret_that_is_not_here(run, trees, monkeypatch):
    assert "There is no source other" in run("source", "check", "other", code=1)

    monkeypatch.delenv("LEASEWAY_SECRET_SRC")
    assert "LEASEWAY_SECRET_SRC isn't set here" in run("source", "check", "trees", code=1)


@pytest.fixture
def uploaded(run, bucket, tmp_path):
    path = tmp_path / "trees.csv"
    path.write_bytes("Nr;Höhe;Art\n1;1,5;Ahorn\n2;;B\u00c3\u00a4ume\n".encode())
    run("source", "upload", "trees", path)


def test_a_file_is_looked_at_too(run, uploaded):
    said = run("source", "check", "trees", "--json")

    assert said["records"] == 2
    assert {name: (c["type"], c["nulls"], c["suspects"]) for name, c in columns(said).items()} == {
        "Nr": ("integer", 0, 0),
        "Höhe": ("decimal", 1, 0),
        "Art": ("text", 0, 1),
    }
    assert "csv, 2 records, 37 B" in run("source", "list")


def test_an_upload_tells_what_looks_like_numbers_and_that_no_mark_was_found(run, bucket, tmp_path):
    path = tmp_path / "budget.csv"
    path.write_text("Titel;Betrag\nA;1.234,50\nB;12.345,67\n")

    said = run("source", "upload", "budget", path)

    assert (
        "! Betrag looks like numbers with thousands separators (1.234,50): it stays text, for a type is given" in said
    )
    assert [line.split(maxsplit=1)[1] for line in said.splitlines() if line.startswith(("decimal", "date"))] == [
        "none found",
        "none found",
    ]
    machine = run("source", "upload", "budget", path, "--decimal", ",", "--json")
    assert machine["dialect"]["decimal"] == ","
    assert machine["hints"][0].startswith("Betrag looks like numbers")
    said = run("source", "upload", "budget", path)  # what was declared is known
    assert [line.split()[1:] for line in said.splitlines() if line.startswith("decimal")] == [[","]]


def test_a_definition_begins_from_a_file(run, uploaded, tmp_path):
    path = tmp_path / "begun.yaml"

    run("init", "trees", path)

    text = path.read_text()
    assert "# 2 records" in text
    assert 'source: trees  # csv: encoding utf-8 · delimiter ; · quote " · ' in text
    assert " · decimal , · " in text
    assert '- {name: "Höhe", type: decimal}  # none in 1' in text


def test_a_definition_begins_with_a_name_that_may_be_published_whatever_the_header_is(run, bucket, tmp_path):
    headers = ["Einwohner\r\n2023", "Hauptwohnung " * 10, "a\x85\u2028\ufeffb", "Nr", "\\"]
    file, begun = tmp_path / "trees.jsonl", tmp_path / "begun.yaml"
    file.write_text(json.dumps(dict.fromkeys(headers, 1)) + "\n")
    said = run("source", "upload", "trees", file)
    assert "trees.jsonl, 1 record, " in said
    assert r"Einwohner\r\n2023  " in said

    assert "1 record, 4 columns." in run("init", "trees", begun, "--without", "\\")

    columns = yaml_files.read(begun).content["columns"]
    assert [(column.get("from", column["name"]), column["name"]) for column in columns] == [
        (headers[0], "Einwohner 2023"),
        (headers[1], ("Hauptwohnung " * 5)[:63].rstrip()),
        (headers[2], "a \ufeffb"),
        ("Nr", "Nr"),
    ]
    assert r'  # "\\" (integer) was left out' in begun.read_text()
    assert "from" not in columns[3]


def test_a_file_that_is_uploaded_again_is_not_sent_twice(run, uploaded, tmp_path, database):
    path = tmp_path / "trees.csv"
    s3 = boto3.client("s3")
    key = registry.source(database, "trees")["file"]["key"]
    before = s3.head_object(Bucket="leaseway-files", Key=key)["LastModified"]

    assert "revision 1" in run("source", "upload", "trees", path)
    assert s3.head_object(Bucket="leaseway-files", Key=key)["LastModified"] == before
    assert run("source", "upload", "trees", path, "--json")["revision"] == 1


def test_a_file_that_changes_while_it_is_read_is_not_registered(run, bucket, tmp_path, monkeypatch, database):
    from chalicelib.exports import dialects

    path = tmp_path / "trees.csv"
    path.write_text("a;b\n1;2\n")
    look = dialects.look

    def and_then_it_changes(*arguments):
        seen = look(*arguments)
        path.write_text("a;b\n1;3\n")
        return seen

    monkeypatch.setattr(dialects, "look", and_then_it_changes)

    assert "was changed while it was being read" in run("source", "upload", "trees", path, code=1)
    assert registry.source(database, "trees") is None
    assert "Contents" not in boto3.client("s3").list_objects_v2(Bucket="leaseway-files")


def test_a_bad_name_is_refused_before_anything_is_read(run, bucket, tmp_path):
    path = tmp_path / "trees.csv"
    path.write_text("not;even\nthis\n")

    assert "name: must be 1 to 63 of" in run("source", "upload", "Trees", path, code=1)
