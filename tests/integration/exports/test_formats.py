"""Files beside the usual three: JSON Lines, GeoJSON, the CSV for spreadsheets, gzip variants."""

import gzip
import re
import zlib

import pytest

from chalicelib.catalog.describing import csvw
from chalicelib.exports import CSV, JSON, XML, Column, FileSpec, Relation, SourceError, relation
from chalicelib.exports.formats import JSON_LINES, excel_csv, geojson
from chalicelib.exports.gzipped import MEMBER, Gzip
from tests.unit.catalog.flights import definition

from .readers import read_csv, read_excel, read_features, read_geojson, read_json, read_jsonl, read_xml
from .test_records import files_of

LINES, FEATURES, SPREADSHEET = FileSpec(JSON_LINES), FileSpec(geojson()), FileSpec(excel_csv())


def columns_of(**types):
    return [Column(name, type_, name) for name, type_ in types.items()]


def test_a_record_is_one_line_of_json_however_its_json_values_were_written(source, tmp_path):
    source.run("create table open.t (j json, a json[])")
    written = '{"a":\r\n "b\\nc",\n\n"d": [\r1]}'
    source.run("insert into open.t values (%s, array[%s, null]::json[])", written, written)

    value = {"a": "b\nc", "d": ["1"]}
    for name, type_, expected in (("j", "json", value), ("a", "json[]", [value, None])):
        relation = Relation(source.dsn, "open.t", None, columns_of(**{name: type_}))
        _, contents = files_of(relation, tmp_path, specs=[FileSpec(JSON), LINES, FEATURES])

        for suffix, read, lines in (("json", read_json, 2), ("jsonl", read_jsonl, 1), ("geojson", read_geojson, 2)):
            assert (contents[suffix].count(b"\n"), contents[suffix].count(b"\r")) == (lines, 0), (type_, suffix)
            assert read(contents[suffix]) == [{name: expected}], (type_, suffix)


def test_OD_74_a_column_that_is_null_in_all_records_stands_in_every_file_in_its_place(source, tmp_path):
    source.run("create table open.t as select g as a, null::text as nothing, 'x' as z from generate_series(1, 3) g")
    relation = Relation(source.dsn, "open.t", None, columns_of(a="integer", nothing="text", z="text"))

    _, contents = files_of(
        relation, tmp_path, specs=[FileSpec(CSV), FileSpec(JSON), FileSpec(XML), LINES, FEATURES, SPREADSHEET]
    )

    readers = {"csv": read_csv, "json": read_json, "xml": read_xml, "jsonl": read_jsonl} | {
        "geojson": read_geojson,
        "excel.csv": read_excel,
    }
    for name, read in readers.items():
        records = read(contents[name])
        assert [list(record) for record in records] == [["a", "nothing", "z"]] * 3, name
        assert [record["nothing"] for record in records] == [None] * 3, name


# For spreadsheets

FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "=cmd|' /C calc'!A0", "-", "--5"]
HARMLESS = ["-5", "+5", "-5.25", "-5,25", "007", "a=b", " =1", "", "x;y", 'say "x"', "two\nlines", "both\r\nof them"]


def test_OD_73_no_cell_for_a_spreadsheet_is_a_formula_and_numbers_stay_numbers(source, tmp_path):
    source.run("create table open.t (n int, t text)")
    for n, text in enumerate([*FORMULAS, *HARMLESS]):
        source.run("insert into open.t values (%s, %s)", -n, text)
    relation = Relation(source.dsn, "open.t", None, columns_of(n="integer", t="text"))

    _, contents = files_of(relation, tmp_path, specs=[FileSpec(CSV), SPREADSHEET])

    read = {int(record["n"]): record["t"] for record in read_excel(contents["excel.csv"])}
    assert [read[-n] for n in range(len(read))] == [*(f"'{text}" for text in FORMULAS), *HARMLESS]
    machine = {int(record["n"]): record["t"] for record in read_csv(contents["csv"])}
    assert [machine[-n] for n in range(len(machine))] == [*FORMULAS, *HARMLESS]  # for machines nothing is changed


def test_OD_73_a_date_before_christ_is_no_subtraction_and_a_name_no_formula(source, tmp_path):
    source.run(
        'create table open.t as select date \'0044-03-15 BC\' as "=d", -5 as "-n", interval \'-1 day\' as "+i",'
        " timestamptz '0044-03-15 12:00:00+00 BC' as \"@tz\", json '-1e5' as j"
    )
    columns = columns_of(**{"=d": "date", "-n": "integer", "+i": "interval", "@tz": "timestamptz", "j": "json"})

    _, contents = files_of(Relation(source.dsn, "open.t", None, columns), tmp_path, specs=[SPREADSHEET])

    assert contents["excel.csv"].decode() == (
        "\ufeff'=d;'-n;'+i;'@tz;j\r\n'-0043-03-15;-5;'-P1D;'-0043-03-15T12:00:00Z;'-1e5\r\n"
    )


def test_the_metadata_of_the_csv_for_spreadsheets_describes_its_cells(source, tmp_path):
    source.run("""
        create table open.t as
        select d as "=date", d::timestamp as "+timestamp", d::timestamp at time zone 'UTC' as "@timestamptz"
             , i as "-interval", j as "=json"
          from (values (date '0044-03-15 BC', interval '-1 day', '-1e5'::json), ('2024-02-29', 'P1DT-2H', '"=1"')
                     , ('12024-12-31', '0', '-5')) as v (d, i, j)""")
    types = {name: name[1:] for name in ("=date", "+timestamp", "@timestamptz", "-interval", "=json")}

    _, contents = files_of(Relation(source.dsn, "open.t", None, columns_of(**types)), tmp_path, specs=[SPREADSHEET])

    columns = [{"name": name, "type": type_} for name, type_ in types.items()]
    file = {"format": "csv-excel", "name": "t.excel.csv"}
    described = csvw(definition(formats=["csv-excel"], columns=columns), file, "t")["tableSchema"]["columns"]
    for record in read_excel(contents["excel.csv"]):
        assert list(record) == [column["titles"] for column in described]
        for column, cell in zip(described, record.values(), strict=True):
            datatype = column["datatype"]
            assert datatype == "string" or re.fullmatch(datatype["format"], cell), cell


@pytest.mark.parametrize(
    ("delimiter", "decimal", "line"),
    [
        (";", ",", "-1,50;0,25;1e-07;9223372036854775807;x,y\r\n"),
        (",", ".", '-1.50,0.25,1e-07,9223372036854775807,"x,y"\r\n'),
        ("\t", ",", "-1,50\t0,25\t1e-07\t9223372036854775807\tx,y\r\n"),
    ],
)
def test_delimiter_and_decimal_mark_are_the_declared_ones(source, tmp_path, delimiter, decimal, line):
    source.run(
        "create table open.t as select -1.50 as d, 0.25::float8 as f, 1e-7::float8 as e,"
        " 9223372036854775807 as i, 'x,y' as t"
    )
    columns = columns_of(d="decimal", f="double", e="double", i="integer", t="text")

    relation = Relation(source.dsn, "open.t", None, columns)
    _, contents = files_of(relation, tmp_path, specs=[FileSpec(excel_csv(delimiter, decimal))])

    assert contents["excel.csv"].decode() == f"\ufeff{delimiter.join('dfeit')}\r\n{line}"


# GeoJSON

POINT = FileSpec(geojson(longitude="lon", latitude="lat"))


def test_a_feature_has_its_place_from_two_columns_and_none_where_one_of_them_is_null(source, tmp_path):
    source.run("create table open.t (n int, lon numeric, lat float8)")
    source.run(
        "insert into open.t values (1, 9.180000000000000001, 48.78), (2, -180, 90), (3, 180, -90), (4, null, 1),"
        " (5, 1, null), (6, 'NaN', 1), (7, 1, 'Infinity'), (8, 1e-7, 1e-7),"
        " (9, 180.00000000000000000000, 5e-324)"
    )
    relation = Relation(source.dsn, "open.t", None, columns_of(n="integer", lon="decimal", lat="double"))

    _, contents = files_of(relation, tmp_path, specs=[POINT])

    features = read_features(contents["geojson"])
    assert [geometry and geometry["coordinates"] for geometry, _ in features] == [
        ["9.180000000000000001", "48.78"],  # longitude first, every digit
        ["-180", "90"],
        ["180", "-90"],
        None,
        None,
        None,
        None,
        ["0.0000001", "1e-07"],
        ["180.00000000000000000000", "5e-324"],
    ]
    assert {geometry["type"] for geometry, _ in features if geometry} == {"Point"}
    assert [list(properties) for _, properties in features] == [["n", "lon", "lat"]] * 9


@pytest.mark.parametrize(
    ("lon", "lat", "column"),
    [
        ("180.01", "0", "lon"),
        ("0", "-90.01", "lat"),
        ("-181", "null", "lon"),
        ("null", "91", "lat"),
        ("180.00000000000000000001", "0", "lon"),
        ("0", "-90.00000000000000000001", "lat"),
    ],
)
def test_a_place_beyond_the_earth_is_a_bad_record_with_its_column(source, tmp_path, lon, lat, column):
    source.run(f"create table open.t as select 1 as n, 0.0 as lon, 0.0 as lat union all select 2, {lon}, {lat}")
    relation = Relation(source.dsn, "open.t", None, columns_of(n="integer", lon="decimal", lat="decimal"))

    with pytest.raises(SourceError) as raised:
        files_of(relation, tmp_path, specs=[POINT])

    assert raised.value.code == "source_bad_record"
    assert (raised.value.details["record"], raised.value.details["column"]) == (2, column)
    assert list(tmp_path.iterdir()) == []


def test_a_feature_collection_of_nothing(source, tmp_path):
    source.run("create table open.t (lon int, lat int)")
    relation = Relation(source.dsn, "open.t", None, columns_of(lon="integer", lat="integer"))

    _, contents = files_of(relation, tmp_path, specs=[POINT, LINES, SPREADSHEET])

    assert contents == {
        "geojson": b'{"type":"FeatureCollection","features":[]}\n',
        "jsonl": b"",
        "excel.csv": b"\xef\xbb\xbflon;lat\r\n",
    }


# gzip

EVERY = [CSV, JSON, XML, JSON_LINES, geojson(), excel_csv()]


def members(data):
    """What each member of a gzip file holds."""
    found = []
    while data:
        member = zlib.decompressobj(16 + zlib.MAX_WBITS)
        assert data[4:8] == b"\0\0\0\0"  # no time
        found.append(member.decompress(data))
        assert member.eof
        data = member.unused_data
    return found


@pytest.mark.parametrize("records", [0, 1, MEMBER, MEMBER + 1, 2 * MEMBER])
def test_a_gzip_variant_is_the_same_file_in_members_of_so_many_records(source, tmp_path, monkeypatch, records):
    source.run(f"create table open.t as select g as n, 'größe' as t from generate_series(1, {records}) g")
    wanted = Relation(source.dsn, "open.t", None, columns_of(n="integer", t="text"))
    specs = [FileSpec(format_, gzip=True) for format_ in EVERY]

    exported, contents = files_of(wanted, tmp_path, specs=specs)
    monkeypatch.setattr(relation, "BATCH", 1000)  # the server's rows come otherwise
    _, again = files_of(wanted, tmp_path, specs=specs)

    assert contents == again
    assert [file.suffix for file in exported.files][:2] == ["csv", "csv.gz"]
    for file in exported.files:
        assert file.compress == ("application/gzip" if file.suffix.endswith(".gz") else None)
        if file.compress:
            plain = contents[file.suffix.removesuffix(".gz")]
            assert gzip.decompress(contents[file.suffix]) == plain
            held = members(contents[file.suffix])
            assert len(held) == max(1, -(-records // MEMBER)), file.suffix
            level_6 = [zlib.compress(member, 6, 16 + zlib.MAX_WBITS) for member in held]
            assert contents[file.suffix] == b"".join(level_6), file.suffix


@pytest.mark.parametrize("format_", EVERY, ids=lambda format_: format_.name)
def test_a_file_doesn_t_show_where_it_was_cut(source, tmp_path, format_):
    """Written in one go, or by three who each begin where the one before has ended."""
    records = 3 * MEMBER - 7
    source.run(f"create table open.t as select g as n, e'a\\nb' as t from generate_series(1, {records}) g")
    wanted = Relation(source.dsn, "open.t", None, columns_of(n="integer", t="text"))
    _, contents = files_of(wanted, tmp_path, specs=[FileSpec(format_, gzip=True)])

    with relation.snapshot(wanted) as seen:
        rows = [bytes(row) for batch in seen.records(format_) for row in batch]
    plain, compressed = b"", b""
    for start, end in ((0, MEMBER), (MEMBER, 2 * MEMBER), (2 * MEMBER, records)):
        writer = Gzip(start)
        data = format_.header(wanted.columns) if start == 0 else b""
        piece, _ = format_.records(rows[start:end], first=start == 0)
        compressed += writer.write(data) + writer.write(piece, end - start)
        footer = format_.footer if end == records else b""
        compressed += writer.write(footer) + writer.end()
        plain += data + piece + footer

    assert plain == contents[format_.suffix]
    assert compressed == contents[f"{format_.suffix}.gz"]
