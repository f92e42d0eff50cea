"""A file as a source: uploaded once, exported like a table, next month the same command again."""

import csv
import io
import json
from uuid import UUID

import boto3
import psycopg
import pytest
from click.testing import CliRunner

from chalicelib.cli import leaseway
from chalicelib.datasets import registry
from chalicelib.db import DatabaseAway
from chalicelib.engine import LedgerRow
from chalicelib.exports.storage import Upload
from chalicelib.pipelines.export import removal, staging
from tests.integration.pipelines.conftest import BUCKET, CLOSED, Killed

CONTENT = 'Nr;Art;Höhe;gepflanzt;Bemerkung\r\n1;Bergahorn;12,50;01.04.1987;"alt; ""krank"""\r\n2;Linde;8,00;;""\r\n'
COLUMNS = [
    {"name": "id", "type": "integer", "from": "Nr"},
    {"name": "species", "type": "text", "from": "Art"},
    {"name": "height", "type": "decimal", "from": "Höhe"},
    {"name": "planted", "type": "date", "from": "gepflanzt"},
    {"name": "note", "type": "text", "from": "Bemerkung"},
]


@pytest.fixture
def upload(office, tmp_path):
    """`leaseway source upload trees`, the source of the office's dataset from then on."""

    def run(content, *options, name="trees.csv", code=0, encoding="cp1252"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode(encoding))
        result = CliRunner().invoke(leaseway, ["source", "upload", "trees", str(path), *options])
        assert result.exit_code == code, result.output
        return result.output

    return run


def staging_tables(office):
    return [
        row["relname"]
        for row in office.db.run("select relname from pg_class where relnamespace = 'staging'::regnamespace")
    ]


def files(office):
    version = registry.versions(office.db, "trees")[0]
    return {file["format"]: office.content(file["key"]) for file in version["files"]}


def sources(office):
    return [key for key in office.files() if key.startswith("sources/")]


def test_an_offices_csv_becomes_three_files_of_equal_values(office, upload):
    said = upload(CONTENT)
    for words in ("windows-1252", ";", "DD.MM.YYYY", "decimal", "2 records", "revision 2"):
        assert words in said
    office.define(columns=COLUMNS)
    job = office.publish()
    office.run(2)

    assert office.engine.status(job).state == "PUBLISHED"
    assert files(office)["csv"].decode() == (
        'id,species,height,planted,note\n1,Bergahorn,12.50,1987-04-01,"alt; ""krank"""\n2,Linde,8.00,,""\n'
    )
    assert json.loads(files(office)["json"], parse_float=str)[0] == {
        "id": 1,
        "species": "Bergahorn",
        "height": "12.50",
        "planted": "1987-04-01",
        "note": 'alt; "krank"',
    }
    assert b"<planted>1987-04-01</planted>" in files(office)["xml"]
    assert staging_tables(office) == []
    version = registry.versions(office.db, "trees")[0]
    assert (version["source_revision"], version["records"]) == (2, 2)


def test_the_revision_names_object_dialect_checksum_and_columns(office, upload):
    upload(CONTENT)

    file = registry.source(office.db, "trees")["file"]
    assert sources(office) == [file["key"]] == [f"sources/trees/{file['sha256']}.csv"]
    assert office.content(file["key"]) == CONTENT.encode("cp1252")
    assert (file["records"], file["bytes"]) == (2, len(CONTENT))
    assert file["dialect"]["encoding"] == "windows-1252"
    assert file["columns"][2] == {"name": "Höhe", "type": "decimal", "nulls": 0}


def test_next_months_file_is_the_same_command_and_the_same_file_no_revision(office, upload):
    upload(CONTENT)
    office.define(columns=COLUMNS)
    office.publish()
    office.run(2)
    assert "revision 2" in upload(CONTENT)
    assert "revision 3" in upload(CONTENT + "3;Eiche;1,00;02.05.2024;neu\r\n")
    office.publish()
    office.run(2)

    newest, older = registry.versions(office.db, "trees")
    assert (older["source_revision"], older["records"]) == (2, 2)
    assert (newest["source_revision"], newest["records"]) == (3, 3)
    assert len(sources(office)) == 2


def test_what_was_declared_holds_for_next_months_file(office, upload):
    def null():
        return registry.source(office.db, "trees")["file"]["dialect"]["null"]

    upload("a;b\n1;NA\n", "--null", "NA", "--decimal", ",")
    upload("a;b\n2;NA\n")
    assert null() == "NA"
    assert registry.source(office.db, "trees")["file"]["dialect"]["decimal"] == ","
    upload("a;b\n2;-\n", "--null", "-")
    assert null() == "-"
    upload("a;b\n2;-\n", "--afresh")
    assert null() == ""


def test_a_column_that_has_no_value_for_a_month_is_of_any_type(office, upload):
    upload(CONTENT)
    office.define(columns=COLUMNS)
    office.publish()
    office.run(2)
    header = CONTENT.splitlines()[0]
    upload(f"{header}\r\n1;Eiche;;;\r\n2;Linde;;;\r\n")
    job = office.publish()
    office.run(2)
    assert office.engine.status(job).status == "succeeded"
    assert files(office)["csv"].decode().splitlines()[1:] == ["1,Eiche,,,", "2,Linde,,,"]

    upload(f"{header}\r\n")
    job = office.publish()
    office.run(2)
    assert office.engine.status(job).code == "too_few_records"


def test_what_is_not_as_it_was_is_said(office, upload):
    upload("a;b;c\n1;2;3\n")

    said = upload("a;b;d\n1;x;3\n")

    for words in ("! Column c is gone.", "! Column d is new.", "! Column b was integer and is text."):
        assert words in said


def test_a_source_of_another_kind_is_told_what_its_name_was(office, upload):
    registry.register_store(office.db, "trees", "trees")

    assert "! Until now it was the store of trees." in upload("a;b\n1;2\n")
    assert "Until now" not in upload("a;b\n1;3\n")
    for told in ("! Until now it was a file: csv, 1 record, ", ""):
        said = CliRunner().invoke(leaseway, ["source", "register", "trees", "--store", "trees"])
        assert said.exit_code == 0
        assert ("Until now" in said.output) == bool(told)
        assert told in said.output


@pytest.mark.parametrize(
    ("content", "options", "said"),
    [
        ("a;b\n1;2\n3;x;4\n", (), "trees.csv: Line 3, column 3: the record has 3 cells, the header 2. Quote a"),
        ("a;;c\n1;2;3\n", (), "trees.csv: Line 1, column 2: the header is empty"),
        ("a;b;a\n1;2;3\n", (), "trees.csv: Line 1, column 3: the header 'a' stands in column 1 already."),
        (
            "a;b\n1;ü\n",
            ("--encoding", "utf-8"),
            "trees.csv: Line 2, column 3: the byte 0xFC can't be decoded as utf-8.",
        ),
        ("a;b\n1;x\0\n", (), "trees.csv: Line 2, column 4: a NUL"),
    ],
)
def test_OD_76_a_file_with_a_fault_is_named_by_line_and_column_and_leaves_nothing(
    office, upload, content, options, said
):
    assert said in upload(content, *options, code=1)

    assert office.files() == []
    assert office.uploads() == []
    assert registry.source(office.db, "trees")["revision"] == 1


def test_a_dry_run_leaves_nothing(office, upload):
    assert "Bergahorn" not in upload(CONTENT, "--dry-run")

    assert office.files() == []
    assert registry.source(office.db, "trees")["revision"] == 1


@pytest.mark.parametrize(
    "options",
    [
        ("--encoding", "ebcdic"),
        ("--delimiter", ";;"),
        ("--date", "DD.MM.YY"),
        ("--date", "DD.MM.YYYY hh"),
        ("--quote", "''"),
        ("--skip", "-1"),
    ],
)
def test_an_option_that_means_nothing_is_wrong_usage(office, upload, options):
    upload(CONTENT, *options, code=2)


def test_what_is_declared_is_what_counts(office, upload):
    upload("n|d|t\n1|2024#02#29|x\n-|-|y\n", "--delimiter", "|", "--date", "YYYY#MM#DD", "--null", "-")

    file = registry.source(office.db, "trees")["file"]
    assert [(column["type"], column["nulls"]) for column in file["columns"]] == [
        ("integer", 1),
        ("date", 1),
        ("text", 0),
    ]


def test_json_lines_come_out_as_they_went_in(office, upload):
    upload(
        '{"id": 1, "plz": "01067", "h": 1.50, "tags": ["ä", 0.10]}\n{"id": 2, "h": 123456789012345678901234567890.5}\n',
        name="trees.jsonl",
        encoding="utf-8",
    )
    office.define(
        columns=[
            {"name": "id", "type": "integer"},
            {"name": "plz", "type": "text"},
            {"name": "h", "type": "decimal"},
            {"name": "tags", "type": "json"},
        ]
    )
    office.publish()
    office.run(2)

    assert files(office)["json"].decode() == (
        '[{"id":1,"plz":"01067","h":1.50,"tags":["ä", 0.10]}\n'
        ',{"id":2,"plz":null,"h":123456789012345678901234567890.5,"tags":null}\n]\n'
    )


def test_OD_68_the_definition_says_whether_the_csv_has_a_byte_order_mark(office, upload):
    upload("id;name\n1;ä\n", encoding="utf-8-sig")
    office.publish()
    office.run(2)
    assert files(office)["csv"] == "id,name\n1,ä\n".encode()
    office.define(csv_bom=True)
    office.publish()
    office.run(2)

    assert files(office)["csv"] == "id,name\n1,ä\n".encode("utf-8-sig")
    assert files(office)["json"].startswith(b"[{")


def test_many_records_go_by_batches_and_none_is_lost(office, upload, monkeypatch):
    monkeypatch.setattr(staging, "BATCH", 70)
    upload("id;name\n" + "".join(f"{n};Bäume Nr. {n}\n" for n in range(1, 1001)))
    office.publish()
    office.run(2)

    rows = list(csv.DictReader(io.StringIO(files(office)["csv"].decode())))
    assert rows == [{"id": str(n), "name": f"Bäume Nr. {n}"} for n in range(1, 1001)]
    assert office.db.run("select total from engine.job where pipeline = 'export'") == [{"total": 1000}]


def test_rows_without_a_filled_cell_at_the_end_are_told_and_not_published(office, upload):
    tail = CONTENT + ";;;;\r\n" * 3
    said = upload(tail.replace("2;Linde", ";;;;\r\n2;Linde"))
    assert "3 records" in said
    assert "! 3 rows without a filled cell at the end are left out." in said
    assert "! 1 row without a filled cell before others is a record without a value." in said
    office.define(columns=COLUMNS)
    office.publish()
    office.run(2)

    assert [record["id"] for record in json.loads(files(office)["json"])] == [1, 2, None]  # in the export's order
    result = CliRunner().invoke(leaseway, ["source", "check", "trees", "--json"])
    assert json.loads(result.output)["records"] == 3


def test_a_file_that_was_registered_with_its_empty_rows_keeps_them(office, upload):
    upload(CONTENT + ";;;;\r\n")
    file = registry.source(office.db, "trees")["file"]
    del file["left_out"]
    registry.register_file(office.db, "trees", file | {"records": 3})
    office.define(columns=COLUMNS)
    office.publish()
    office.run(2)

    assert [record["id"] for record in json.loads(files(office)["json"])] == [1, 2, None]


def test_a_column_is_published_whatever_its_header_is_and_what_is_not_is_named(office, upload):
    odd = ["Einwohner\n2023", "é" * 5_000, '\x01"']
    upload(f'id;"{odd[0]}";{odd[1]};"\x01""";"neu\t"\n1;2;x;y;z\n', encoding="utf-8")
    office.define(
        columns=[
            {"name": "id", "type": "integer"},
            *({"name": name, "type": "text", "from": header} for name, header in zip("abc", odd, strict=True)),
        ]
    )
    job = office.publish()
    office.run(2)

    assert office.engine.status(job).result["unpublished"] == ["neu"]
    assert files(office)["csv"] == b"id,a,b,c\n1,2,x,y\n"
    upload("id;Einwohner 2023\n1;2\n")
    job = office.publish()
    office.run(2)
    failure = office.engine.status(job)
    assert (failure.code, failure.details["column"]) == ("source_changed", odd[0])


def test_a_column_that_is_not_published_is_named(office, upload):
    upload("id;name;secret\n1;x;y\n")
    job = office.publish()
    office.run(2)

    assert office.engine.status(job).result["unpublished"] == ["secret"]
    assert b"secret" not in files(office)["csv"]


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("id;nom\n1;x\n", {"column": "name"}),
        ("id;name\nx;y\n", {"column": "id"}),
        ("id;name\n1.5;y\n", {"column": "id"}),
        ("id;nom\nx;y\n", {"column": "id", "others": ["name"]}),
    ],
)
def test_columns_that_are_missing_or_of_another_type_are_source_changed(office, upload, content, named):
    upload(content)
    job = office.publish()
    office.run(2)

    failure = office.engine.status(job)
    assert failure.code == "source_changed"
    assert failure.details == {"step": "EXPORT", "relation": "trees", **named}
    assert staging_tables(office) == []


def test_whole_numbers_are_good_decimals_and_anything_is_a_text(office, upload):
    upload("id;name\n1;2\n")
    office.define(columns=[{"name": "id", "type": "decimal"}, {"name": "name", "type": "text"}])
    office.publish()
    office.run(2)

    assert files(office)["csv"] == b"id,name\n1,2\n"


def test_a_record_that_no_table_can_hold_fails_at_once_and_by_name(office, upload):
    upload(f"{';'.join(f'q{n}' for n in range(500))}\n{';'.join(f'answer number {n}' for n in range(1000, 1500))}\n")
    office.define(columns=[{"name": f"q{n}", "type": "text"} for n in range(500)])
    job = office.publish()
    office.run(2)

    failure = office.engine.status(job)
    assert (failure.code, failure.attempts) == ("row_too_wide", 1)
    assert staging_tables(office) == []


@pytest.mark.parametrize("content", ["id;name\n1;y\n", "id;name\n1;\n", "id;name\n1;x\n2;x\n", "id;name\n1\n"])
def test_an_object_that_is_not_the_file_that_was_registered_is_not_published(office, upload, content):
    upload("id;name\n1;x\n")
    boto3.client("s3").put_object(Bucket=BUCKET, Key=sources(office)[0], Body=content.encode())
    job = office.publish()
    office.run(2)

    failure = office.engine.status(job)
    assert (failure.code, failure.details["relation"]) == ("source_changed", "trees")
    assert registry.versions(office.db, "trees") == []
    assert staging_tables(office) == []


def test_an_hour_without_object_storage_fails_no_publication_of_a_file(office, upload, s3_url):
    upload("id;name\n1;x\n")
    office.point(AWS_ENDPOINT_URL=CLOSED)
    job = office.publish()
    office.run(60)
    assert office.engine.status(job).waiting_for.code == "storage_unreachable"
    assert staging_tables(office) == []
    office.point(AWS_ENDPOINT_URL=s3_url)
    office.run(10)

    assert office.engine.status(job).state == "PUBLISHED"


@pytest.mark.parametrize("where", ["while the table is filled", "while the files are written"])
def test_a_worker_that_dies_leaves_a_table_that_cleanup_drops(office, upload, monkeypatch, where):
    upload("id;name\n1;x\n")
    deaths = []

    def die(*_args, **_kwargs):
        if not deaths:
            deaths.append(staging_tables(office))
            raise Killed
        return undead(*_args, **_kwargs)

    place, name = (staging, "_fill") if where == "while the table is filled" else (Upload, "complete")
    undead = getattr(place, name)
    monkeypatch.setattr(place, name, die)
    dropping = staging.drop
    monkeypatch.setattr(staging, "drop", lambda *_: None)  # a killed process drops nothing
    job = office.publish()
    office.work()
    assert staging_tables(office) == deaths[0] != []
    monkeypatch.setattr(staging, "drop", dropping)
    office.run(10)
    assert office.engine.status(job).state == "PUBLISHED"
    assert len(staging_tables(office)) == 1
    office.run(20)

    assert staging_tables(office) == []
    assert len(sources(office)) == 1  # cleanup leaves those alone
    office.run(45)
    assert office.db.run("select id from engine.ledger where kind = 'staging'") == []


def test_a_database_that_goes_away_while_dropping_leaves_it_to_cleanup(office, upload, monkeypatch):
    upload("id;name\n1;x\n")

    def away(*_):
        raise DatabaseAway

    monkeypatch.setattr(staging, "drop", away)
    job = office.publish()
    office.run(2)
    assert office.engine.status(job).state == "PUBLISHED"
    assert len(staging_tables(office)) == 1
    office.run(31)

    assert staging_tables(office) == []


def test_the_remover_drops_nothing_else(office):
    row = LedgerRow(
        id=1, job_id=UUID(int=1), claim_id=1, kind="staging", locator={"table": "x; drop table y"}, tries=0
    )  # fmt: skip
    with pytest.raises(ValueError, match="drop table y"):
        removal.drop_staging(row)


@pytest.mark.parametrize("statement", ["truncate", "drop table"])
def test_a_table_that_a_crash_emptied_or_a_failover_lost_is_filled_again(
    office, upload, monkeypatch, admin_database_dsn, statement
):
    upload("id;name\n1;x\n")
    fill = staging._fill
    crashes = []

    def emptied(db, store, source, dialect, columns, table, filling):
        fill(db, store, source, dialect, columns, table, filling)
        if not crashes:
            crashes.append(table)
            with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
                admin.execute(f"{statement} staging.{table}")

    monkeypatch.setattr(staging, "_fill", emptied)
    job = office.publish()
    office.run(3)

    status = office.engine.status(job)
    assert (status.state, status.attempts) == ("PUBLISHED", 1)
    assert registry.versions(office.db, "trees")[0]["records"] == 1


def test_a_file_needs_no_connection_and_takes_no_slot(office, upload):
    upload("id;name\n1;x\n")
    office.db.run("update dataset.connection set max_jobs = 1")
    office.point(LEASEWAY_SECRET_SRC="")
    job = office.publish()
    office.run(2)

    assert office.engine.status(job).state == "PUBLISHED"
