"""Cells of a load: taken only where there is no doubt what they mean, else named by row, column and reason."""

import pytest
from pydantic import ValidationError

from chalicelib.datasets.store import StoreColumn
from chalicelib.exports.files import Dialect, Raw
from chalicelib.pipelines.load import LoadDialect
from chalicelib.pipelines.load.rows import SAME, TAKERS, Checked, Records, Unfit

UNHELD = [r'"\u0000"', r'{"a": ["\u0000"]}', r'"\\\u0000"', r'{"\uDC00": 1}', r'["\ude00\ud83d"]', r'"\ud83d\\ude00"']
"""NUL, and halves of surrogate pairs."""

GOOD = {
    "text": ["", "x", "=1+1", "  ", "ä\n"],
    "boolean": ["true", "false", Raw("true")],
    "integer": ["0", "-1", "007", "9223372036854775807", "-9223372036854775808", Raw("12")],
    "decimal": ["1", "-1.50", "1e3", "1E-3", "0.000", "9" * 1000, Raw("12.50")],
    "double": ["1", "1e300", "-0", "5e-324", "0e400"],
    "date": ["2024-02-29", "0001-01-01", "9999-12-31"],
    "time": ["00:00", "23:59:59", "12:00:00.123456"],
    "timestamp": ["2024-02-29T00:00", "2024-02-29 23:59:59.5"],
    "timestamptz": ["2024-02-29T00:00:00Z", "2024-02-29 00:00+01", "2024-02-29T00:00:00.5-15:59", "0001-01-01T00:00Z"],
    "uuid": ["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11"],
    "json": ["1.50", '{"a": [null]}', '"x"', r'"\ud83d\uDE00"', r'"\\ud800"', r'{"\\u0000": "\\\ud83d\ude00 \u0001"}'],
    "binary": ["", "00ff0D"],
}
BAD = {
    "text": [Raw("1067"), Raw("true"), Raw('{"a": 1}')],
    "boolean": ["TRUE", "t", "1", "", Raw("1")],
    "integer": ["", "+1", "1.0", "1e3", "9223372036854775808", "-9223372036854775809", "9" * 5000, " 1", "١", "--1"],
    "decimal": ["", "NaN", "Infinity", "1,5", ".5", "5.", "1e1000", "9" * 1001, "1_000", Raw("[1]")],
    "double": ["NaN", "inf", "1e309", "1e-400", "1.5 "],
    "date": [
        "2023-02-29",
        "0000-01-01",
        "12024-01-01",
        "today",
        "infinity",
        "2024-2-9",
        "29.02.2024",
        "2024-02-29T00:00",
    ],
    "time": ["24:00", "12:60", "12", "12:00:00.1234567", "12:00 PM", "now", "12:00Z"],
    "timestamp": [
        "2024-02-29",
        "2024-02-29T24:00",
        "2023-02-29T00:00",
        "2024-02-29T00:00Z",
        "epoch",
        "2024-02-29_00:00",
    ],
    "timestamptz": [
        "2024-02-29T00:00",
        "2024-02-29T00:00+16:00",
        "2024-02-29T00:00+25",
        "2024-02-29T00:00+05:60",
        "2024-02-29T00:00-0175",
        "2024-02-29T00:00 CET",
        "Z",
        "nowZ",
    ],
    "uuid": ["a0eebc999c0b4ef8bb6d6bb9bd380a11", "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}", "x"],
    "json": ["", "NaN", "{a: 1}", "[" * 100_000, "[" * 10_000 + "]" * 10_000, "9" * 5_000, *UNHELD],
    "binary": ["0", "0x00", "zz", "\\x00"],
}


@pytest.mark.parametrize("type_", TAKERS)
def test_a_cell_is_a_value_of_its_type_or_nothing(type_):
    for cell in GOOD[type_]:
        assert TAKERS[type_](Dialect())(cell) == (f"\\x{cell}" if type_ == "binary" else cell), cell
    for cell in BAD[type_]:
        assert TAKERS[type_](Dialect())(cell) is None, cell


@pytest.mark.parametrize(
    ("type_", "dialect", "cell", "taken"),
    [
        ("decimal", Dialect(decimal=","), "1,50", "1.50"),
        ("decimal", Dialect(decimal=","), "1.50", None),
        ("double", Dialect(decimal=","), "1,5", "1.5"),
        ("double", Dialect(decimal=","), "1.5", None),
        ("date", Dialect(date="DD.MM.YYYY"), "29.02.2024", "2024-02-29"),
        ("date", Dialect(date="DD.MM.YYYY"), "2024-02-29", None),
        ("date", Dialect(date="DD.MM.YYYY"), "29x02x2024", None),
        ("date", Dialect(date="DD.MM.YYYY"), "31.02.2024", None),
        ("date", Dialect(date="YYYYMMDD"), "20240229", "2024-02-29"),
        ("json", Dialect(format="jsonl"), 'a "b"', '"a \\"b\\""'),
        ("json", Dialect(format="jsonl"), Raw("[1.50]"), "[1.50]"),
    ],
)
def test_the_dialect_says_how_cells_are_written(type_, dialect, cell, taken):
    assert TAKERS[type_](dialect)(cell) == taken


@pytest.mark.parametrize(
    ("type_", "one", "other"),
    [
        ("integer", "7", "007"),
        ("decimal", "1.0", "1.000"),
        ("decimal", "1e2", "100"),
        ("time", "12:00", "12:00:00.0"),
        ("timestamp", "2024-02-29T12:00", "2024-02-29 12:00:00"),
        ("timestamptz", "2024-02-29T12:00Z", "2024-02-29T13:00+01"),
        ("uuid", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("binary", "\\xFF", "\\xff"),
    ],
)
def test_two_spellings_of_a_key_are_one(type_, one, other):
    assert SAME[type_](one) == SAME[type_](other)
    assert hash(SAME[type_](one)) == hash(SAME[type_](other))


ID, NAME, TEXT = (
    StoreColumn("id", "integer", True),
    StoreColumn("name", "text", True),
    StoreColumn("note", "text", False),
)


def checked(content, *columns, key=("id",), **dialect):
    dialect = Dialect(**dialect)
    found = Records([content.encode()], dialect)
    return Checked(found, columns or (ID, NAME, TEXT), key, dialect, header=found.header)


def unfit(rows):
    with pytest.raises(Unfit) as raised:
        list(rows)
    found = raised.value
    return found.code, found.details, [(bad.row, bad.column, bad.reason, bad.value) for bad in found.bad]


def test_rows_come_in_the_order_of_the_store_and_what_is_not_there_is_null():
    assert list(checked("name,id\nx,1\n")) == [["1", "x", None]]
    assert list(checked('{"name": "x", "id": 1}\n{"id": 2, "note": "", "name": "y"}', format="jsonl")) == [
        ["1", "x", None],
        ["2", "y", ""],
    ]


@pytest.mark.parametrize(
    ("value", "bad"),
    [(value, [] if value.startswith('"') else [(1, "doc", "not_json", value)]) for value in UNHELD],
)
def test_json_that_no_text_can_hold_is_refused_in_json_lines_as_in_a_csv(value, bad):
    rows = checked(f'{{"id": 1, "doc": {value}}}\n', ID, StoreColumn("doc", "json", False), format="jsonl")

    code, _, told = unfit(rows)
    # A string is looked at before it is known what its column is: its line isn't readable.
    assert (code, told) == ("invalid_rows" if bad else "unreadable_rows", bad)


def test_each_bad_row_is_counted_once_and_the_first_hundred_are_told():
    content = "id,name,note\n" + "1,,\nx,,\n1,a,\n2,b,\n2,c,\n" + "y,y,\n" * 200
    rows = checked(content)

    code, details, bad = unfit(rows)

    assert (code, details) == ("invalid_rows", {"records": 203})
    assert bad[:4] == [
        (1, "name", "missing", None),
        (2, "id", "not_integer", "x"),
        (5, "id", "key_twice", "2"),
        (6, "id", "not_integer", "y"),
    ]
    assert len(bad) == 100
    assert rows.rows == 205


def test_of_a_key_that_comes_again_and_again_the_first_hundred_are_told_too():
    code, details, bad = unfit(checked("id,name,note\n" + "1,a,\n" * 150))

    assert (code, details, len(bad)) == ("invalid_rows", {"records": 149}, 100)


def test_after_a_bad_row_no_more_are_given():
    rows = iter(checked("id,name,note\n1,a,\nx,b,\n3,c,\n"))

    assert next(rows) == ["1", "a", None]
    with pytest.raises(Unfit):
        next(rows)


def test_a_key_of_several_columns_is_one_identity_and_no_novel():
    assert len(list(checked("id,name,note\n1,a,\n1,b,\n2,a,\n", key=("id", "name")))) == 3
    assert unfit(checked(f"id,name,note\n1,{'x' * 2000},\n", key=("id", "name")))[2][0][:3] == (1, "id", "key_too_long")
    assert unfit(checked("id,name,note\n1,a,\n01,a,\n", key=("id", "name")))[2] == [(2, "id", "key_twice", "01")]


@pytest.mark.parametrize(
    ("content", "dialect", "code", "details"),
    [
        ("id,name,notes\n1,x,y\n", {}, "unknown_column", {"column": 3}),
        ("id,note\n1,x\n", {}, "missing_column", {"column": "name"}),
        ('{"id": 1}\n', {"format": "jsonl"}, "invalid_rows", {"records": 1}),
        ('{"id": 1, "name": "x"}\n{"nr": 2}\n', {"format": "jsonl"}, "unknown_column", {"record": 2, "column": 1}),
        ("id,name,note\n", {}, "no_rows", {}),
        ("id,name,notes\n", {}, "unknown_column", {"column": 3}),
        ("id,note\n", {}, "missing_column", {"column": "name"}),
        ("", {}, "unreadable_rows", {"record": 1, "column": 1}),
        ('id,name,note\n1,"x\n', {}, "unreadable_rows", {"record": 2, "column": 2}),
        ("id,name,note\n1,x\n", {}, "unreadable_rows", {"record": 2, "column": 3}),
    ],
)
def test_what_concerns_all_rows_has_a_code_of_its_own(content, dialect, code, details):
    assert unfit(checked(content, **dialect))[:2] == (code, details)


def test_an_array_may_be_laid_out_as_one_likes():
    dialect = Dialect(format="jsonl")
    found = Records([b' [\n {"id": 1.50,\n  "x": {"y": [ 1 ]}}\n, {} ] \n'], dialect, as_array=True)

    assert list(found) == [{"id": "1.50", "x": '{"y": [ 1 ]}'}, {}]
    assert list(Records([b"[]"], dialect, as_array=True)) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{}", "Line 1: expected '['"),
        (b"[{}", "Line 2: expected ','"),
        (b"[{} {}]", "Line 2: expected ','"),
        (b"[{},]", "Line 2: it isn't JSON."),
        (b"[{}, 1]", "Line 2, column 1: expected '{'"),
        (b"[{}] x", "Line 1: something follows the array."),
        (b"[] x", "Line 1: something follows the array."),
        (b"[-Infinity]", "Line 1: NaN and Infinity aren't JSON's"),
        (b'[{"a": 1}, {"a": ' + b"9" * 5_000 + b"}]", "Line 2: a number has more than 4300 digits"),
        (b"[" + b"[" * 200_000, "Line 1: it is nested too deeply."),
        (b'[{"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}]", "Line 1: it is nested too deeply."),
        (b"\xe4", "Line 1: it isn't UTF-8."),
    ],
)
def test_what_is_no_array_of_objects_is_named(body, said):
    with pytest.raises(Unfit) as unfit:
        list(Records([body], Dialect(format="jsonl"), as_array=True))
    assert unfit.value.named.startswith(said)


@pytest.mark.parametrize(
    ("type_", "cell", "columns"),  # 24 bytes, 8 of the id, then so many of the value
    [
        ("integer", "1", 1_016),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", 508),
        ("boolean", "true", 1_500),
        ("decimal", "-0.00", 1_500),
        ("decimal", "1234.5e3", 1_161),
        ("text", "ä", 1_500),
        ("text", "abcdefg", 1_016),
        ("text", "x" * 50, 677),
        ("binary", "00ff0d", 1_500),
        ("binary", "00" * 6, 1_161),
    ],
)
def test_a_row_is_refused_where_its_values_cannot_be_made_small_enough_for_a_page(type_, cell, columns):
    wide = [ID, *(StoreColumn(f"c{n}", type_, False) for n in range(1_500))]

    def row(number):
        return [{"id": "1"} | {f"c{n}": cell for n in range(number)}]

    dialect = Dialect()
    assert len(list(Checked(row(columns), wide[: columns + 1], ["id"], dialect))) == 1
    if columns < 1_500:
        refused = unfit(Checked(row(columns + 1), wide[: columns + 2], ["id"], dialect))
        assert refused[2] == [(1, f"c{columns}", "row_too_wide", None)]


def test_values_of_1600_columns_are_remembered_once():
    cells = {f"c{n}": str(n % 7) for n in range(300)}
    columns = [ID, *(StoreColumn(name, "integer", False) for name in cells)]
    rows = Checked([{"id": str(n)} | cells for n in range(3)], columns, ["id"], Dialect())

    assert len(list(rows)) == 3
    assert rows._takers["c1"][1] is rows._takers["c299"][1]


@pytest.mark.parametrize(
    "said",
    [
        {"date": "DD.MM.YY"},
        {"date": "DDaMM.YYYY"},
        {"date": "YYYY\0MM\0DD"},
        {"delimiter": "\n"},
        {"null": "\0"},
        {"skip": "1"},
        {"delimiter": "x", "quote": "x"},
    ],
)
def test_a_dialect_that_nobody_could_read_is_none(said):
    with pytest.raises(ValidationError):
        LoadDialect(**said)


def test_the_lease_is_kept_while_bad_rows_are_counted():
    beats = []
    rows = Checked(
        Records([b"id\nbad\n" + b"".join(b"%d\n" % n for n in range(4_999))], Dialect("csv")),
        [ID],
        ["id"],
        Dialect("csv"),
        lambda: beats.append(1),
    )
    with pytest.raises(Unfit):
        list(rows)
    assert len(beats) == 5
