"""The files hold the same records, whatever stands in them and however the source is set up."""

import hashlib
import json

import psycopg
import pytest

from chalicelib.exports import CSV, CSV_WITH_BOM, JSON, XML, Column, FileSpec, LocalFile, Relation, SourceError, export
from chalicelib.exports.formats import JSON_LINES, STAGING, excel_csv, geojson
from chalicelib.exports.relation import snapshot
from chalicelib.exports.types import type_of

from .readers import Number, read_csv, read_excel, read_geojson, read_json, read_jsonl, read_xml

READERS = {"csv": read_csv, "json": read_json, "xml": read_xml}
ALL_READERS = READERS | {"jsonl": read_jsonl, "geojson": read_geojson}


def quiet(**progress):
    """A beat that nobody listens to."""


THREE = (FileSpec(CSV), FileSpec(JSON), FileSpec(XML))
ALL = (*THREE, FileSpec(JSON_LINES), FileSpec(geojson()), FileSpec(excel_csv()))


def files_of(relation, folder, beat=quiet, specs=THREE):
    exported = export(relation, specs, lambda suffix, _: LocalFile(folder / f"data.{suffix}"), beat=beat)
    contents = {file.suffix: (folder / f"data.{file.suffix}").read_bytes() for file in exported.files}
    for file in exported.files:
        assert (file.bytes, file.sha256) == (
            len(contents[file.suffix]),
            hashlib.sha256(contents[file.suffix]).hexdigest(),
        )
    return exported, contents


def as_text(value):
    """A value of the JSON file as the other files write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


TEXTS = [
    "",
    " ",
    "  both ends  ",
    "NULL",
    "null",
    r"\N",
    r"\.",
    "\\",
    '"',
    '""',
    "a,b",
    "a;b\tc",
    "line\nbreak",
    "carriage\rreturn",
    "both\r\nof them",
    "\n",
    "\r",
    "]]>",
    "<!-- & -->",
    "&amp;",
    "<a>'x'</a>",
    "=1+1",
    "-5",
    "007",
    "\ufeff",
    "\u2028\u0085",
    "grün, ß, 漢字",
    "😀 \U0010ffff",
    "\x7f",
]


def test_OD_69_the_same_texts_in_every_format(source, tmp_path):
    source.run("create table open.texts (n int, t text)")
    for n, text in enumerate([*TEXTS, None]):
        source.run("insert into open.texts values (%s, %s)", n, text)
    columns = [Column("n", "integer", "n"), Column("t", "text", "t")]
    hostile(source)

    exported, contents = files_of(Relation(source.dsn, "open.texts", None, columns), tmp_path, specs=ALL)

    assert exported.records == len(TEXTS) + 1
    assert exported.removed == 0
    for name, read in ALL_READERS.items():
        assert [record["t"] for record in read(contents[name])] == [*TEXTS, None], name
    no_formulas = [f"'{text}" if text in ("=1+1", "\n", "\r") else text for text in TEXTS]
    assert [record["t"] for record in read_excel(contents["excel.csv"])] == [*no_formulas, None]
    assert b"\r\n" not in contents["csv"].replace(b"both\r\nof them", b"")


def test_OD_09_controls_stay_in_csv_and_json_and_are_removed_from_xml_and_counted(source, tmp_path):
    texts = [f"<{chr(code)}>" for code in range(1, 0x20)] + ["\x01", "\x01\x02\x01", "\ufffe|\uffff", "a\x01b\nc"]
    source.run("create table open.controls (n int, t text)")
    for n, text in enumerate(texts):
        source.run("insert into open.controls values (%s, %s)", n, text)
    columns = [Column("n", "integer", "n"), Column("t", "text", "t")]
    hostile(source)

    exported, contents = files_of(Relation(source.dsn, "open.controls", None, columns), tmp_path, specs=ALL)

    for name in ALL_READERS.keys() - {"xml"}:
        assert [record["t"] for record in ALL_READERS[name](contents[name])] == texts
    gone = {code: None for code in range(0x20) if chr(code) not in "\t\n\r"} | {0xFFFE: None, 0xFFFF: None}
    assert [record["t"] for record in read_xml(contents["xml"])] == [text.translate(gone) for text in texts]
    assert exported.removed == sum(len(text) - len(text.translate(gone)) for text in texts) == 28 + 1 + 3 + 2 + 1


# column, declared type, type at the source, values as SQL, as text in every file
VALUES = [
    ("i", "integer", "int8", ["9223372036854775807", "-9223372036854775808", "0"], None),
    ("i4", "integer", "int4", ["-2147483648"], None),
    ("i2", "integer", "int2", ["32767"], None),
    (
        "d",
        "decimal",
        "numeric",
        ["0.1", "1.00", "123456789012345678901234567890.12345678901234567", "-0.00000000000000000001", "1e400"],
        {"1e400": "1" + "0" * 400},
    ),
    (
        "f",
        "double",
        "float8",
        ["0.1", "1e+300", "5e-324", "-0", "1.7976931348623157e+308", "0.30000000000000004"],
        None,
    ),
    ("r", "double", "float4", ["0.1", "1e-45"], None),
    ("b", "boolean", "bool", ["true", "false"], None),
    ("u", "uuid", "uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], None),
    ("t", "time", "time", ["10:00:00", "23:59:59.999999", "24:00:00"], None),
    ("x", "binary", "bytea", [r"\x00ff0d0a22", r"\x"], {r"\x00ff0d0a22": "00ff0d0a22", r"\x": ""}),
    (
        "day",
        "date",
        "date",
        ["2024-02-29", "1500-01-01", "12024-12-31", "0044-03-15 BC", "0001-12-31 BC", "4713-01-01 BC"],
        {"0044-03-15 BC": "-0043-03-15", "0001-12-31 BC": "0000-12-31", "4713-01-01 BC": "-4712-01-01"},
    ),
    (
        "ts",
        "timestamp",
        "timestamp",
        ["2024-03-31 02:30:00", "2024-03-31 02:30:00.000001", "10000-01-01 00:00:00", "0044-03-15 12:00:00.5 BC"],
        {
            "2024-03-31 02:30:00": "2024-03-31T02:30:00",
            "2024-03-31 02:30:00.000001": "2024-03-31T02:30:00.000001",
            "10000-01-01 00:00:00": "10000-01-01T00:00:00",
            "0044-03-15 12:00:00.5 BC": "-0043-03-15T12:00:00.5",
        },
    ),
    (
        "tz",
        "timestamptz",
        "timestamptz",
        ["2024-07-01 12:00:00+02", "2024-01-01 00:00:00.25+05:45", "0001-01-01 00:30:00+01"],
        {
            "2024-07-01 12:00:00+02": "2024-07-01T10:00:00Z",
            "2024-01-01 00:00:00.25+05:45": "2023-12-31T18:15:00.25Z",
            "0001-01-01 00:30:00+01": "0000-12-31T23:30:00Z",
        },
    ),
    (
        "span",
        "interval",
        "interval",
        ["1 year 2 months 3 days 04:05:06.7", "0", "-1 day", "-0.5 s", "-1 mon -2 days -3 hours", "1 day -2 hours"],
        {
            "1 year 2 months 3 days 04:05:06.7": "P1Y2M3DT4H5M6.7S",
            "0": "PT0S",
            "-1 day": "-P1D",
            "-0.5 s": "-PT0.5S",
            "-1 mon -2 days -3 hours": "-P1M2DT3H",
            "1 day -2 hours": "P1DT-2H",
        },
    ),
    ("e", "text", "open.mood", ["so, so", "<glad>"], None),
    ("c", "text", "char(8)", ["ab"], None),
    ("v", "text", "varchar(8)", ["ab "], None),
    ("nm", "text", "name", ["a 'name'"], None),
    ("dom", "text", "open.letters", ["ä"], None),
    ("ci", "text", "open.citext", ["aB"], None),
]
# An array of each type: its elements as SQL, and as JSON has them.
ARRAYS = [
    ("text", "text", ["", "a,b", 'qu"ote', "<&>", "NULL", "line\nbreak", None, "\\"], None),
    ("integer", "int8", ["9223372036854775807", None], ["9223372036854775807", None]),
    ("decimal", "numeric", ["1.00", "1e30", "NaN", None], ["1.00", "1" + "0" * 30, None, None]),
    ("double", "float8", ["0.1", "1e300", "NaN", "-Infinity"], ["0.1", "1e+300", None, None]),
    ("boolean", "bool", ["true", "false", None], [True, False, None]),
    ("date", "date", ["1500-01-01", "0044-03-15 BC", "infinity"], ["1500-01-01", "-0043-03-15", None]),
    ("time", "time", ["24:00:00"], None),
    ("timestamp", "timestamp", ["12024-01-01 00:00:00.5"], ["12024-01-01T00:00:00.5"]),
    ("timestamptz", "timestamptz", ["2024-07-01 12:00:00+02", None], ["2024-07-01T10:00:00Z", None]),
    ("interval", "interval", ["-1 day", "1 month"], ["-P1D", "P1M"]),
    ("uuid", "uuid", ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], None),
    ("json", "json", ['{"a":\n [1.50]}', None, "null"], [{"a": ["1.50"]}, None, None]),
    ("json", "jsonb", ['"x"'], ["x"]),
    ("binary", "bytea", [r"\x00ff", r"\x"], ["00ff", ""]),
    ("text", "open.plate", ["AB 1"], None),
]


NULLED = {"d": ["NaN", "Infinity", "-Infinity"], "f": ["NaN", "Infinity", "-Infinity"], "r": ["NaN"]} | {
    name: ["infinity", "-infinity"] for name in ("day", "ts", "tz")
}


@pytest.fixture
def typed(source):
    """A table with every type; each value in a row of its own."""
    source.run("create type open.mood as enum ('so, so', '<glad>')")
    source.run("create domain open.letters as text; create extension citext schema open")
    source.run(
        "create table open.typed (n int generated always as identity, "
        + ", ".join(f"{name} {type_}" for name, _, type_, *_ in VALUES)
        + ")"
    )
    expected = []
    for name, _, type_, values, spelling in VALUES:
        for value in [*values, *NULLED.get(name, [])]:
            source.run(f"insert into open.typed ({name}) values (%s::text::{type_})", value)
            nulled = value in NULLED.get(name, [])
            expected.append({name: None if nulled else (spelling or {}).get(value, value)})
    source.run("insert into open.typed default values")
    expected.append({})
    names = [name for name, *_ in VALUES]
    columns = [Column("n", "integer", "n"), *(Column(name, declared, name) for name, declared, *_ in VALUES)]
    expected = [dict.fromkeys(names) | record for record in expected]
    return Relation(source.dsn, "open.typed", None, columns), expected


def in_a_spreadsheet(name, value):
    """A value as the CSV for spreadsheets has it: its decimal mark, and no cell that would be a formula."""
    if value and name in ("d", "f", "r"):
        return value.replace(".", ",")
    return f"'{value}" if value and name in ("day", "ts", "tz", "span") and value.startswith("-") else value


def test_OD_71_OD_72_every_type_reads_back_equal_from_every_format(typed, tmp_path):
    relation, expected = typed

    _, contents = files_of(relation, tmp_path, specs=ALL)

    for name, read in ALL_READERS.items():
        records = [{k: as_text(v) for k, v in record.items() if k != "n"} for record in read(contents[name])]
        assert records == expected, name
    spreadsheet = [{k: v for k, v in record.items() if k != "n"} for record in read_excel(contents["excel.csv"])]
    assert spreadsheet == [{k: in_a_spreadsheet(k, v) for k, v in record.items()} for record in expected]
    first = read_json(contents["json"])[0]
    assert isinstance(first["i"], Number)  # a number, not a text
    assert read_json(contents["json"])[-1]["b"] is None


def test_an_array_of_each_type_is_a_json_array_in_every_format(source, tmp_path):
    source.run("create domain open.letters as text; create domain open.plate as open.letters check (length(value) > 2)")
    names = [f"a{n}" for n in range(len(ARRAYS))]
    columns = [Column(name, f"{declared}[]", name) for name, (declared, *_) in zip(names, ARRAYS, strict=True)]
    declared = ", ".join(f"{name} {type_}[]" for name, (_, type_, *_) in zip(names, ARRAYS, strict=True))
    source.run(f"create table open.lists (n int, {declared})")
    values = ", ".join(f"%s::text[]::{type_}[]" for _, type_, *_ in ARRAYS)
    source.run(f"insert into open.lists values (1, {values})", *(elements for _, _, elements, _ in ARRAYS))
    source.run(f"insert into open.lists values (2{', %s' * len(ARRAYS)})", *("{}" for _ in ARRAYS))
    source.run("insert into open.lists values (3)")
    source.run("insert into open.lists (n, a1) values (4, '[0:1]={7,8}')")  # as a list it is like any other

    relation = Relation(source.dsn, "open.lists", None, [Column("n", "integer", "n"), *columns])
    hostile(source)
    _, contents = files_of(relation, tmp_path, specs=ALL)

    expected = [read or elements for _, _, elements, read in ARRAYS]
    for name, read in (ALL_READERS | {"excel.csv": read_excel}).items():
        one, two, three, four = (list(record.values())[1:] for record in read(contents[name]))
        if name in ("csv", "xml", "excel.csv"):
            one, two, four = (
                [None if v is None else read_json(v.encode()) for v in record] for record in (one, two, four)
            )
        assert one == expected, name
        assert two == [[]] * len(ARRAYS), name
        assert three == [None] * len(ARRAYS), name
        assert four[1] == ["7", "8"], name


def test_an_array_of_arrays_is_a_bad_record(source, tmp_path):
    source.run("create table open.lists as select 1 as n, array[1] as a union all select 2, array[[1, 2], [3, 4]]")
    columns = [Column("n", "integer", "n"), Column("a", "integer[]", "a")]

    with pytest.raises(SourceError) as raised:
        files_of(Relation(source.dsn, "open.lists", None, columns), tmp_path)

    assert raised.value.code == "source_bad_record"
    assert (raised.value.details["record"], raised.value.details["column"]) == (2, "a")


STRANGE = ["point", "int4range", "inet", "money", "tsvector", "oid", "point[]", "int2vector", '"char"', "pg_node_tree"]


def refused(source, folder, type_, *declared):
    """Whether a column of a type is neither offered nor written as one of these; what it is offered as."""
    source.run(f"drop table if exists open.strange; create table open.strange (a {type_})")
    for as_ in declared:
        with pytest.raises(SourceError) as raised:
            files_of(Relation(source.dsn, "open.strange", None, [Column("a", as_, "a")]), folder)
        assert (raised.value.code, raised.value.details["column"]) == ("source_changed", "a")
    with snapshot(Relation(source.dsn, "open.strange", None, [])) as seen:
        return [type_of(found) for _, found in seen.describe()]


@pytest.mark.parametrize("type_", STRANGE)
def test_a_type_that_isn_t_in_the_table_is_never_written_as_its_own_text(source, tmp_path, type_):
    assert refused(source, tmp_path, type_, "text", "text[]", "json", "integer[]") == [None]


NAMESAKES = ["time", "uuid", "json", "int4", "bool", "text", "varchar", "numeric", "citext", "geometry"]


def test_another_type_of_the_same_name_is_another_type(source, tmp_path):
    """Anybody who may make types may call one as PostgreSQL's own is called; an enum is text under any name."""
    source.run("create schema other; create type other.time as range (subtype = text)")
    source.run("create type other.date as enum ('today'); create domain open.domain as other.time")
    for name in NAMESAKES:
        source.run(f'create type open."{name}" as (h int, m text)')

    assert [refused(source, tmp_path, f'open."{name}"') for name in NAMESAKES] == [[None]] * len(NAMESAKES)
    for type_ in ("open.time", "other.time", "open.domain"):
        assert refused(source, tmp_path, type_, "time", "text", "json") == [None]
        assert refused(source, tmp_path, f"{type_}[]", "time[]", "text[]") == [None]
    assert refused(source, tmp_path, "other.date", "date") == ["text"]


# What a query makes text of by itself depends on the settings too, and its own text may hold anything.
TEXTS_OF_A_QUERY = r"""
    select t::text as t, i::text as i, f::text as f, x::text as x, date '01/02/03'::text as d,
           'gr\"un \ grün' as "größe"
      from (values (timestamptz '2024-07-01 12:00:00+02', interval '-1 day 2 hours', 0.1::float8, '\xff00'::bytea))
           as v (t, i, f, x)
"""


def test_what_a_query_makes_text_of_does_not_depend_on_the_settings_either(source, tmp_path):
    columns = [Column(name, "text", name) for name in ("t", "i", "f", "x", "d", "größe")]
    relation = Relation(source.dsn, None, TEXTS_OF_A_QUERY, columns)
    source.set(**HOSTILE)

    _, contents = files_of(relation, tmp_path, specs=ALL)

    for name, read in ALL_READERS.items():
        assert read(contents[name]) == [
            {"t": "2024-07-01 10:00:00+00", "i": "P-1DT2H", "f": "0.1", "x": r"\xff00", "d": "2001-02-03"}
            | {"größe": 'gr\\"un \\ grün'}
        ], name


HOSTILE = {
    "timezone": "Asia/Kathmandu",
    "datestyle": "SQL, DMY",
    "intervalstyle": "sql_standard",
    "extra_float_digits": "-15",
    "bytea_output": "escape",
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "quote_all_identifiers": "on",
    "search_path": "nowhere",
    "xmlbinary": "hex",
    "xmloption": "document",
    "lc_monetary": "C",
    "lc_numeric": "C",
    "lc_time": "C",
    "backslash_quote": "on",
    "escape_string_warning": "on",
    "transform_null_equals": "on",
    "array_nulls": "off",
    "default_text_search_config": "simple",
    "row_security": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_read_only": "off",
    "enable_sort": "off",
    "enable_seqscan": "off",
}


def hostile(source):
    """A source whose settings and search_path are as bad as they get."""
    source.set(**HOSTILE)
    source.shadow()


def copy_of(relation):
    """The rows that a staging table would get."""
    with snapshot(relation) as seen:
        return [bytes(row) for batch in seen.records(STAGING) for row in batch]


def test_the_bytes_do_not_depend_on_the_settings_of_the_source(source, typed, tmp_path):
    relation, _ = typed
    _, friendly = files_of(relation, tmp_path, specs=ALL)
    copied = copy_of(relation)

    hostile(source)
    with psycopg.connect(source.dsn) as connection:  # they are in force, unless somebody does something about them
        assert connection.execute("show timezone").fetchone() == ("Asia/Kathmandu",)
    _, unfriendly = files_of(relation, tmp_path, specs=ALL)
    _, asked = files_of(
        Relation(
            f"{source.dsn} client_encoding=LATIN1 options='-c datestyle=German'",
            relation.relation,
            None,
            relation.columns,
        ),
        tmp_path,
        specs=ALL,
    )

    assert unfriendly == friendly
    assert copy_of(relation) == copied
    assert asked == friendly


def test_a_source_finds_what_its_reader_s_search_path_leads_to(source, tmp_path):
    source.run("create table open.t as select 3 as a; create schema mine; grant usage on schema mine to public")
    source.run("create function mine.lower(int) returns int language plpgsql as 'begin return max(a) + $1 from t; end'")
    source.run("create view open.v as select mine.lower(a) as a from open.t")
    source.run("create function mine.abs(int) returns int language sql as 'select 70 + $1'")
    source.run(f"alter role {source.name} set search_path = mine, pg_catalog, open")
    a = [Column("a", "integer", "a")]

    for relation, query, found in (("t", None, 3), ("v", None, 6), (None, "select abs(lower(a)) as a from t", 76)):
        assert files_of(Relation(source.dsn, relation, query, a), tmp_path)[1]["csv"] == b"a\n%d\n" % found


def test_json_stays_json_and_is_text_in_the_other_formats(source, tmp_path):
    values = [
        '{"a": [1, 2.50, null], "b": "<&>\\n"}',
        "null",
        '"text"',
        "1E400",
        '{\n  "pretty": true,\r\n\t"by": "hand"\n}',
    ]
    source.run("create table open.documents (n int, j json, b jsonb)")
    for n, value in enumerate([*values, None]):
        source.run("insert into open.documents values (%s, %s, %s)", n, value, value)
    columns = [Column("n", "integer", "n"), Column("j", "json", "j"), Column("b", "json", "b")]
    hostile(source)

    _, contents = files_of(Relation(source.dsn, "open.documents", None, columns), tmp_path, specs=ALL)

    for name in ("json", "jsonl", "geojson"):
        assert [record["j"] for record in ALL_READERS[name](contents[name])] == [
            None if v is None else json.loads(v, parse_float=Number, parse_int=Number) for v in [*values, None]
        ]
    for name, read in (("csv", read_csv), ("xml", read_xml), ("excel.csv", read_excel)):
        assert [record["j"] for record in read(contents[name])] == [*values, None], name
        assert json.loads(read(contents[name])[0]["b"]) == json.loads(values[0]), name


WHOLE = [r'"\ud83d\uDE00"', r'"\\ud800"', r'"\\\ud83d\ude00"', r'{"\ud83d\ude00": "\u0000 \u00d8"}']


@pytest.mark.parametrize(
    "value", [r'"\ud800"', r'{"\uDC00": 1}', r'["\ude00\ud83d"]', r'"\ud83d\\ude00"', r'"\\\ud83d"']
)
@pytest.mark.parametrize("type_", ["json", "json[]"])
def test_half_of_a_character_in_json_is_a_bad_record_in_every_format(source, tmp_path, value, type_):
    source.run(f"create table open.documents (n int, j {type_})")
    for n, each in enumerate([*WHOLE, value]):
        source.run(f"insert into open.documents values (%s, %s::{type_})", n, [each] if type_ == "json[]" else each)
    columns = [Column("n", "integer", "n"), Column("j", type_, "j")]
    relation = Relation(source.dsn, None, "select * from open.documents where n < 4", columns)

    _, contents = files_of(relation, tmp_path, specs=ALL)

    found = [json.loads(each) for each in WHOLE]
    expected = [[each] for each in found] if type_ == "json[]" else found
    assert [record["j"] for record in read_json(contents["json"])] == expected
    for spec in ALL:
        with pytest.raises(SourceError) as raised:
            files_of(Relation(source.dsn, "open.documents", None, columns), tmp_path, specs=[spec])
        assert raised.value.code == "source_bad_record"
        assert (raised.value.details["record"], raised.value.details["column"]) == (5, "j")


def test_a_column_may_be_called_anything(source, tmp_path):
    names = [
        "object",
        "record",
        "source",
        "2020",
        "my col",
        "a<b",
        "xml",
        'quo"te',
        "it's",
        "größe",
        "a.b",
        "UPPER",
        "%s",
        "{0}",
    ]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    source.run('create table open."Odd ""Table""" (' + ", ".join(f"{name} int" for name in quoted) + ")")
    source.run('insert into open."Odd ""Table""" values (' + ", ".join(map(str, range(len(names)))) + ")")
    columns = [Column(name, "integer", name) for name in names]

    _, contents = files_of(Relation(source.dsn, 'open."Odd ""Table"""', None, columns), tmp_path)

    values = [str(n) for n in range(len(names))]
    assert read_csv(contents["csv"]) == [dict(zip(names, values, strict=True))]
    assert read_json(contents["json"]) == [dict(zip(names, values, strict=True))]
    assert list(read_xml(contents["xml"])[0].values()) == values


def test_only_the_columns_of_the_definition_are_published_under_their_own_names_in_its_order(source, tmp_path):
    source.run("create table open.people (id int, secret text, name text)")
    source.run("insert into open.people values (2, 'x', 'Bo'), (1, 'y', 'Al')")
    columns = [Column("who", "text", "name"), Column("number", "integer", "id")]

    _, contents = files_of(Relation(source.dsn, "open.people", None, columns), tmp_path)

    assert contents["csv"] == b"who,number\nAl,1\nBo,2\n"
    assert contents["json"] == b'[{"who":"Al","number":1}\n,{"who":"Bo","number":2}\n]\n'
    assert contents["xml"].decode() == (
        '<?xml version="1.0" encoding="UTF-8"?>\n<records xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">\n'
        "<record><who>Al</who><number>1</number></record>\n<record><who>Bo</who><number>2</number></record>\n</records>\n"
    )


def test_more_columns_than_a_function_takes_arguments(source, tmp_path):
    names = [f"c{n}" for n in range(300)]
    source.run(f"create table open.wide ({', '.join(f'{name} int' for name in names)})")
    source.run(f"insert into open.wide values ({', '.join(map(str, range(300)))})")

    _, contents = files_of(Relation(source.dsn, "open.wide", None, [Column(n, "integer", n) for n in names]), tmp_path)

    assert [read(contents[name])[0] for name, read in READERS.items()] == [{n: n[1:] for n in names}] * 3


@pytest.mark.parametrize(("type_", "lasts"), [("text", ["b", "B", "a"]), ("numeric", ["3", "1.0", "1.00"])])
def test_as_many_columns_as_a_table_may_have_are_sorted_by_the_last_one_too(source, tmp_path, type_, lasts):
    source.run(f"create table open.wide ({', '.join(f'c{n} {type_}' for n in range(1_599))})")
    for last in lasts:
        source.run(f"insert into open.wide values ({', '.join(["'1'"] * 1_598)}, '{last}')")
    columns = [Column(f"c{n}", {"text": "text", "numeric": "decimal"}[type_], f"c{n}") for n in range(1_599)]

    _, contents = files_of(Relation(source.dsn, "open.wide", None, columns), tmp_path)

    assert [[record["c1598"] for record in read(contents[name])] for name, read in READERS.items()] == [
        sorted(lasts)
    ] * 3


def test_the_same_records_give_the_same_bytes_wherever_they_lie_in_the_table(source, tmp_path):
    source.run("create table open.moved (k int, d numeric, f float8, t text, s interval)")
    source.run("""
        insert into open.moved
        select i % 7, case i % 3 when 0 then 1.0 when 1 then 1.00 end, case i % 2 when 0 then -0.0::float8 else 0 end,
               case i % 5 when 0 then 'a' when 1 then 'A' when 2 then '' end,
               case when i % 11 < 5 then interval '1 month' else '30 days' end
          from generate_series(1, 5000) i""")
    columns = [
        Column("k", "integer", "k"),
        Column("d", "decimal", "d"),
        Column("f", "double", "f"),
        Column("t", "text", "t"),
        Column("s", "interval", "s"),
    ]
    relation = Relation(source.dsn, "open.moved", None, columns)
    _, before = files_of(relation, tmp_path)

    source.run("create table open.shuffled as select * from open.moved order by random()")
    _, after = files_of(Relation(source.dsn, "open.shuffled", None, columns), tmp_path)

    assert after == before


def test_an_empty_relation_gives_three_empty_files(source, tmp_path):
    source.run("create table open.nothing (a int)")

    exported, contents = files_of(Relation(source.dsn, "open.nothing", None, [Column("a", "integer", "a")]), tmp_path)

    assert exported.records == 0
    assert contents["csv"] == b"a\n"
    assert [read_json(contents["json"]), read_xml(contents["xml"])] == [[], []]


def test_a_query_is_a_source_too_and_cannot_leave_its_brackets(source, tmp_path):
    source.run("create table open.numbers as select n, n % 2 = 0 as even from generate_series(1, 10) n")
    columns = [Column("n", "integer", "n")]
    query = "select n from open.numbers where even and '%' = '%'  -- half of them"

    exported, contents = files_of(Relation(source.dsn, None, query, columns), tmp_path)

    assert exported.records == 5
    assert contents["csv"] == b"n\n2\n4\n6\n8\n10\n"


@pytest.mark.parametrize("encoding", ["LATIN1", "WIN1252"])
def test_a_source_in_another_encoding_gives_utf_8(make_source, tmp_path, encoding):
    source = make_source(f"encoding {encoding} locale 'C'")
    source.run("create table open.texts (t text)")
    source.run("insert into open.texts values ('größe & ÿ')")

    relation = Relation(source.dsn, "open.texts", None, [Column("t", "text", "t")])
    _, contents = files_of(relation, tmp_path, specs=ALL)

    for name, read in ALL_READERS.items():
        assert read(contents[name]) == [{"t": "größe & ÿ"}], name
    assert read_excel(contents["excel.csv"]) == [{"t": "größe & ÿ"}]


@pytest.mark.parametrize("bom", [False, True])
def test_OD_68_a_byte_order_mark_stands_in_the_csv_alone_and_only_if_it_is_wanted(source, tmp_path, bom):
    source.run("create table open.t as select 1 as a, 'ä' as b")
    columns = [Column("a", "integer", "a"), Column("b", "text", "b")]

    exported = export(
        Relation(source.dsn, "open.t", None, columns),
        [FileSpec(CSV_WITH_BOM if bom else CSV), FileSpec(JSON), FileSpec(XML)],
        lambda name, _: LocalFile(tmp_path / name),
        beat=quiet,
    )

    marked = {file.format: (tmp_path / file.format).read_bytes().startswith(b"\xef\xbb\xbf") for file in exported.files}
    assert marked == {"csv": bom, "json": False, "xml": False}
    content = (tmp_path / "csv").read_bytes()
    assert content.decode("utf-8-sig") == "a,b\n1,ä\n"
    assert (exported.files[0].bytes, exported.files[0].sha256) == (len(content), hashlib.sha256(content).hexdigest())
