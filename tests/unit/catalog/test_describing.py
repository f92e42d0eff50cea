"""What stands beside a version's files: CSVW metadata and JSON Schema."""

import re

import jsonschema
import pytest

from chalicelib.catalog.describing import beside, conforms_to, csvw, json_schema, name_of
from tests.unit.catalog.flights import definition

CSV = {"format": "csv", "name": "flights.csv", "media_type": "text/csv"}
EXCEL = {"format": "csv-excel", "name": "flights.excel.csv", "media_type": "text/csv"}

# Columns of every type, and values as a JSON file has them: some that are right, some that aren't.
VALUES = {
    "text": (["", "x"], [1]),
    "boolean": ([True], ["true"]),
    "integer": ([9223372036854775807], [1.5, "1"]),
    "decimal": ([1.5, 1], ["1.5"]),
    "double": ([1e300], ["NaN"]),
    "date": (["2024-02-29", "-0043-03-15", "12024-12-31"], ["29.2.2024", "2024-02-29T00:00:00"]),
    "time": (["24:00:00", "23:59:59.999999"], ["1:00"]),
    "timestamp": (["2024-03-31T02:30:00", "-0043-03-15T12:00:00.5"], ["2024-03-31T02:30:00Z"]),
    "timestamptz": (["2024-03-31T00:30:00.25Z"], ["2024-03-31T00:30:00", "2024-03-31T00:30:00+02:00"]),
    "interval": (["P1Y2M3DT4H5M6.7S", "PT0S", "-P1D", "P1DT-2H"], ["1 day"]),
    "uuid": (["a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"], ["A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", "a0eebc99"]),
    "json": ([{"a": 1}, [1], "x", 1], []),
    "binary": (["", "00ff"], ["0", r"\x00"]),
    "geometry": ([{"type": "Point", "coordinates": [9, 49]}], ["POINT(9 49)"]),
    "text[]": ([[], ["a", None]], ["a", [1]]),
    "integer[]": ([[1, None]], [["1"]]),
    "timestamptz[]": ([["2024-03-31T00:30:00Z"]], [["2024-03-31"]]),
}


def typed():
    return definition(columns=[{"name": type_, "type": type_} for type_ in VALUES])


@pytest.fixture(scope="module")
def validator():
    schema = json_schema(typed(), "https://data.example.org/datasets/flights/versions/1/files/flights.schema.json")
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("type_", VALUES)
def test_the_schema_takes_what_the_json_file_has_and_nothing_else(validator, type_):
    record = dict.fromkeys(VALUES)
    right, wrong = VALUES[type_]

    assert validator.is_valid([record | {type_: value} for value in [*right, None]])
    assert not [value for value in wrong if validator.is_valid([record | {type_: value}])]


def test_every_column_stands_in_every_record_and_no_other(validator):
    record = dict.fromkeys(VALUES)

    assert not validator.is_valid([record | {"another": 1}])
    assert not validator.is_valid([dict.fromkeys(list(VALUES)[1:])])
    assert not validator.is_valid(record)  # an array of them


def test_a_schema_speaks_English_or_else_the_first_language():
    column = {"name": "a", "type": "text", "title": {"de": "Jahr"}, "description": {"en": "When.", "de": "Wann."}}
    schema = json_schema(definition(columns=[column]), "https://data.example.org/")

    assert schema["title"] == "Flights from New York City in 2013"
    assert schema["$defs"]["record"]["properties"]["a"] == {
        "title": "Jahr",
        "description": "When.",
        "type": ["string", "null"],
    }


def test_csvw_names_the_file_beside_it_and_each_column_as_its_first_line_does():
    described = csvw(
        definition(
            columns=[
                {"name": "Größe (m)", "type": "decimal"},
                {"name": "_id", "type": "integer[]", "title": {"en": "Identifier"}, "description": {"en": "A number."}},
            ]
        ),
        CSV,
        "flights",
    )

    assert described["@context"] == "http://www.w3.org/ns/csvw"
    assert described["url"] == "flights.csv"
    assert csvw(definition(), CSV | {"name": "flights.csv.gz"}, "flights")["url"] == "flights.csv"
    assert described["dc:title"][1] == {"@value": "Flüge ab New York City 2013", "@language": "de"}
    assert described["dialect"] == {"encoding": "utf-8", "delimiter": ",", "lineTerminators": ["\n"], "header": True}
    assert described["tableSchema"]["columns"] == [
        {"name": "Gr%C3%B6%C3%9Fe%20%28m%29", "titles": "Größe (m)", "datatype": "decimal"},
        {
            "name": "%5Fid",
            "titles": {"und": "_id", "en": "Identifier"},
            "datatype": "json",
            "dc:description": [{"@value": "A number.", "@language": "en"}],
        },
    ]


def test_csvw_of_the_file_for_spreadsheets_has_its_dialect():
    columns = [{"name": type_, "type": type_} for type_ in ("decimal", "double", "integer")]
    german = csvw(definition(formats=["csv-excel"], columns=columns), EXCEL, "flights")
    english = csvw(
        definition(formats=["csv-excel"], columns=columns, csv_excel={"delimiter": ",", "decimal": "."}),
        EXCEL,
        "flights",
    )

    assert (german["dialect"]["delimiter"], german["dialect"]["lineTerminators"]) == (";", ["\r\n"])
    assert [column["datatype"] for column in german["tableSchema"]["columns"]] == [
        {"base": "decimal", "format": {"decimalChar": ","}},
        {"base": "double", "format": {"decimalChar": ","}},
        "integer",
    ]
    assert english["dialect"]["delimiter"] == ","
    assert english["tableSchema"]["columns"][0]["datatype"] == "decimal"


def test_csvw_of_the_file_for_spreadsheets_knows_the_apostrophes():
    columns = [
        {"name": "=d", "type": "date"},
        {"name": "@j", "type": "json", "title": {"en": "Facts"}},
        {"name": "a-b", "type": "json[]"},
    ]
    described = {
        file["format"]: csvw(definition(formats=["csv", "csv-excel"], columns=columns), file, "flights")["tableSchema"]
        for file in (CSV, EXCEL)
    }

    assert [(c["titles"], c["datatype"]) for c in described["csv-excel"]["columns"]] == [
        ("'=d", {"base": "string", "format": "'?-?[0-9]{4,}-[0-9]{2}-[0-9]{2}"}),
        ({"und": "'@j", "en": "Facts"}, "string"),
        ("a-b", "json"),
    ]
    assert [(c["titles"], c["datatype"]) for c in described["csv"]["columns"]] == [
        ("=d", "date"),
        ({"und": "@j", "en": "Facts"}, "json"),
        ("a-b", "json"),
    ]
    names = [[c["name"] for c in table["columns"]] for table in described.values()]
    assert names[0] == names[1]


def test_every_type_has_a_datatype_of_csvw():
    described = {each["name"]: each["datatype"] for each in csvw(typed(), CSV, "flights")["tableSchema"]["columns"]}
    datatypes = [datatype if isinstance(datatype, str) else datatype["base"] for datatype in described.values()]

    assert datatypes[:5] == ["string", "boolean", "integer", "decimal", "double"]
    assert datatypes[5:10] == ["date", "time", "dateTime", "dateTimeStamp", "string"]
    assert datatypes[10:] == ["string", "json", "hexBinary", "string", "json", "json", "json"]
    for type_ in ("interval", "uuid"):
        right, wrong = VALUES[type_]
        assert [v for v in [*right, *wrong] if re.fullmatch(described[type_]["format"], v)] == right


@pytest.mark.parametrize(
    ("file", "described_by", "follows"),
    [
        (CSV, "flights.csv-metadata.json", ["files/flights.csv-metadata.json"]),
        (CSV | {"name": "flights.csv.gz"}, "flights.csv-metadata.json", ["files/flights.csv-metadata.json"]),
        (EXCEL, "flights.excel.csv-metadata.json", ["files/flights.excel.csv-metadata.json"]),
        ({"format": "json"}, "flights.schema.json", ["files/flights.schema.json"]),
        (
            {"format": "jsonl", "name": "flights.jsonl"},
            "flights.schema.json",
            ["files/flights.schema.json#/$defs/record", "https://jsonlines.org/"],
        ),
        ({"format": "geojson"}, None, ["https://www.rfc-editor.org/rfc/rfc7946"]),
        ({"format": "xml"}, None, []),
    ],
)
def test_each_file_names_what_it_conforms_to(file, described_by, follows):
    assert beside(file, "flights") == described_by
    assert conforms_to(file, "flights", "files") == follows


def test_the_files_of_the_first_versions_are_called_after_their_format():
    assert name_of({"format": "csv"}, "flights") == "flights.csv"
    assert name_of(EXCEL, "flights") == "flights.excel.csv"
