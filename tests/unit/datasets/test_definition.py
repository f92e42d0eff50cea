import json
from contextlib import suppress
from copy import deepcopy
from typing import get_args

import pytest

from chalicelib.api.schedules import ScheduleBody
from chalicelib.datasets import Invalid, vocabularies
from chalicelib.datasets.catalog import Catalog
from chalicelib.datasets.definition import (
    LONGEST_HEADER,
    TOLD,
    Column,
    ColumnType,
    CsvExcel,
    Definition,
    Publisher,
    dataset_id,
    differences,
    published_names,
)
from chalicelib.engine.cadence import Cadence, InvalidCadence
from chalicelib.exports import files
from chalicelib.exports.types import TYPES
from tests.unit.catalog.flights import DEFINITION, definition


def faults(**changes):
    """What is said about the flights when this is changed: field to sentence."""
    with pytest.raises(Invalid) as refusal:
        Definition.parse(deepcopy(DEFINITION) | changes)
    return dict(refusal.value.faults)


def test_a_definition_comes_back_as_it_is_kept():
    taken = definition()

    assert Definition.parse(taken.as_json()) == taken
    assert Definition.parse(json.loads(taken.canonical)).etag == taken.etag
    assert taken.as_json()["columns"][1] == {"name": "carrier", "type": "text", "from": "carrier_code"}


WHOLE = DEFINITION | {
    "access_rights": "PUBLIC",
    "identifiers": ["NYC-1"],
    "conforms_to": ["https://standard.example.org/"],
    "formats": ["csv", "csv-excel", "geojson"],
    "csv_bom": True,
    "csv_excel": {"delimiter": ",", "decimal": "."},
    "gzip": ["csv"],
    "tier": "base",
    "columns": [
        {"name": "id", "type": "integer", "required": True, "title": {"en": "Id"}, "description": {"en": "Its id."}},
        {"name": "shape", "type": "geometry", "srid": 4326, "from": "geom"},
        {"name": "lon", "type": "double"},
        {"name": "lat", "type": "double"},
    ],
    "key": ["id"],
    "geojson": {"geometry": "shape"},
    "min_records": 10,
    "max_drop": 0.5,
}
CATALOG = {name: DEFINITION[name] for name in ("title", "description", "publisher", "licence")} | {
    "homepage": "https://data.example.org/"
}
SCHEDULE = {"every": "week", "at": "02:00", "on": "monday", "zone": "Europe/Berlin"}
DOCUMENTS = [(Definition, WHOLE), (Catalog, CATALOG), (ScheduleBody, SCHEDULE)]
LEFT_OUT = object()


def places(value, path=()):
    """Where a value could be another one: every member and entry, however deep."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in entries:
        yield (*path, name)
        yield from places(inner, (*path, name))


def parsed(document, content, path, value):
    """The document with another value at a place, or what is wrong with it."""
    content = deepcopy(content)
    holder = content
    for name in path[:-1]:
        holder = holder[name]
    if value is LEFT_OUT:
        del holder[path[-1]]
    else:
        holder[path[-1]] = value
    try:
        return document.parse(content)
    except Invalid as invalid:
        return invalid.faults


PLACES = [(document, content, path) for document, content in DOCUMENTS for path in places(content)]


def test_the_whole_definition_says_every_field_there_is():
    said = [WHOLE, WHOLE["columns"][0] | WHOLE["columns"][1], WHOLE["csv_excel"], WHOLE["publisher"]]
    models = [Definition, Column, CsvExcel, Publisher]

    assert [{field.alias or name for name, field in model.model_fields.items()} for model in models] == [
        set(each) for each in said
    ]


@pytest.mark.parametrize(
    "value", [LEFT_OUT, None, True, 0, 1.5, "", "x", [], {}, [None], {"a": None}], ids=lambda value: repr(value)[:12]
)
def test_whatever_stands_in_a_field_is_a_fault_or_comes_back_as_it_is_kept(value):
    for document, content, path in PLACES:
        taken = parsed(document, content, path, value)
        if isinstance(taken, document):
            assert document.parse(taken.as_json()) == taken, path
            if document is ScheduleBody:
                with suppress(InvalidCadence):
                    Cadence(**taken.model_dump())
        else:
            assert taken, path


@pytest.mark.parametrize("value", [True, False, 1.5, [], {}])
def test_the_day_of_a_schedule_is_a_name_or_a_number(value):
    sentence = "must be a weekday's name, like monday, or a day of the month from 1 to 31"

    assert parsed(ScheduleBody, SCHEDULE, ("on",), value) == (("on", sentence),)


def test_null_is_what_is_not_said():
    for document, content, path in PLACES:
        # An entry of a list and the text of a language are no fields: null is a fault there.
        if isinstance(path[-1], str) and not {"title", "description", "name", "keywords"} & set(path[:-1]):
            assert parsed(document, content, path, None) == parsed(document, content, path, LEFT_OUT), path

    assert faults(titel=None) == {"titel": "is no field here; did you mean title?"}


@pytest.mark.parametrize("delimiter", [{}, {"delimiter": ","}, {"delimiter": ";"}, {"delimiter": "\t"}])
@pytest.mark.parametrize("decimal", [{}, {"decimal": ","}, {"decimal": "."}])
def test_what_is_said_of_spreadsheets_never_makes_one_sign_of_two(delimiter, decimal):
    taken = parsed(Definition, WHOLE, ("csv_excel",), delimiter | decimal)

    if delimiter | decimal == {"delimiter": ",", "decimal": ","}:
        assert taken == (("csv_excel.decimal", "is the delimiter, too; take another one of them"),)
    else:
        assert Definition.parse(taken.as_json()) == taken
        assert taken.csv_excel.decimal == decimal.get("decimal", "." if delimiter == {"delimiter": ","} else ",")


def test_the_same_content_in_other_spellings_is_the_same_definition():
    other = {key: DEFINITION[key] for key in reversed(DEFINITION)} | {
        "licence": "http://creativecommons.org/publicdomain/zero/1.0/",
        "languages": ["http://publications.europa.eu/resource/authority/language/ENG", "en"],
        "themes": ["http://publications.europa.eu/resource/authority/data-theme/TRAN"],
        "formats": ["xml", "json", "csv"],
        "access_rights": "http://publications.europa.eu/resource/authority/access-right/PUBLIC",
        "title": {"DE": " Flüge ab New York City 2013\r\n", "en": "Flights from New York City in 2013"},
    }

    assert Definition.parse(other).etag == definition().etag
    assert definition(title={"en": "Flights", "de": "Flüge"}).etag != definition().etag


def test_every_fault_is_told_at_once_with_field_and_remedy():
    told = faults(
        titel={"en": "x"},
        publisher={"name": {"en": ""}},
        contact={"name": {"en": "Desk"}, "email": "nobody"},
        licence="CC_BY_5_0",
        columns=[{"name": "year", "type": "int"}, {"name": "carrier", "form": "c"}],
    )

    assert told == {
        "titel": "is no field here; did you mean title?",
        "publisher.name.en": "is empty; write the text, or leave the field out",
        "contact.email": "must be one mail address, like opendata@example.org",
        "licence": "'CC_BY_5_0' isn't in the EU's list of licences "
        "(http://publications.europa.eu/resource/authority/licence/). Did you mean CC_BY_4_0?",
        "columns[0].type": "must be one of text, boolean, integer, decimal, double, date, time, timestamp, "
        "timestamptz, interval, uuid, json, binary, geometry, or an array of one (but geometry), e.g. text[]",
        "columns[1].type": "is missing: one of text, boolean, integer, decimal, double, date, time, timestamp, "
        "timestamptz, interval, uuid, json, binary, geometry, or an array of one (but geometry), e.g. text[]",
        "columns[1].form": "is no field here; did you mean from?",
    }


def test_an_empty_definition_is_told_each_field_it_needs():
    with pytest.raises(Invalid) as refusal:
        Definition.parse({})

    assert [field for field, _ in refusal.value.faults] == [
        "title",
        "description",
        "keywords",
        "languages",
        "publisher",
        "contact",
        "themes",
        "licence",
        "source",
        "columns",
    ]
    assert all("is missing: " in sentence for _, sentence in refusal.value.faults)


def test_a_flood_of_faults_is_answered_fast_and_short():
    with pytest.raises(Invalid) as refusal:
        Definition.parse(
            {f"unknown {number} " + "x" * 10_000: 1 for number in range(2_000)} | {"frequency": "y" * 10**6}
        )

    assert len(refusal.value.faults) == TOLD
    assert len(str(refusal.value)) < 30_000


def test_what_was_taken_before_its_end_was_looked_at_can_be_published_still():
    temporal = {"start": "2013", "end": "2012"}
    body = definition().as_json() | {"temporal": temporal}

    assert "temporal.end" in faults(temporal=temporal)
    assert Definition.kept(body).as_json() == body


def test_times_in_two_zones_may_look_out_of_order():
    temporal = {"start": "2013-01-01T00:30:00+02:00", "end": "2012-12-31T23:00:00Z"}

    assert definition(temporal=temporal).temporal.end == temporal["end"]


@pytest.mark.parametrize("content", [None, [], "text", 5, [{}]])
def test_what_is_no_object_is_refused(content):
    with pytest.raises(Invalid, match="must be an object"):
        Definition.parse(content)


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"access_rights": "RESTRICTED"}, "access_rights", "every file of a published dataset is open to everyone"),
        ({"tier": "high"}, "tier", "the rules of the higher tier don't exist"),
        ({"tier": "gold"}, "tier", "must be base"),
        ({"formats": ["pdf"]}, "formats[0]", "must be one of csv, csv-excel, geojson, json, jsonl, xml"),
        ({"formats": []}, "formats", "needs at least 1 of its entries"),
        ({"title": "Flights"}, "title", "must be an object of language and text"),
        ({"keywords": "Flights"}, "keywords", 'language and list of texts, e.g. {"en": ["aviation", "airports"]}'),
        ({"title": {"de-a1b2-c": "Flights"}}, "title", "'de-a1b2-c' is no language tag"),
        ({"title": {"english": "Flights"}}, "title", "'english' is no language tag"),
        ({"title": {"de-at": "a", "de_AT": "b"}}, "title", "has the language de-at twice"),
        ({"description": {"en": "All."}}, "description", "in the languages of the title (de, en); it is in en"),
        ({"languages": ["eng lish"]}, "languages[0]", "isn't in the EU's list of languages"),
        ({"languages": ["german"]}, "languages[0]", "Did you mean DEU?"),
        ({"languages": ["Deutsch"]}, "languages[0]", "Did you mean DEU?"),
        ({"languages": ["klingon"]}, "languages[0]", "language/). One of them is ARA."),
        ({"themes": ["TRANS"]}, "themes[0]", "Did you mean TRAN?"),
        ({"themes": ["http://eurovoc.europa.eu/100141"]}, "themes", "needs at least one of the EU's data themes"),
        ({"frequency": "http://purl.org/cld/freq/weekly"}, "frequency", "isn't in the EU's list of frequencies"),
        (
            {"licence": "http://publications.europa.eu/resource/authority/licence/NONE"},
            "licence",
            "isn't in the EU's list",
        ),
        ({"temporal": {"start": "01.02.23"}}, "temporal.start", "must be a date like 2024"),
        ({"temporal": {"start": "2013-02-01", "end": "2013-01-01"}}, "temporal.end", "is before the start"),
        ({"temporal": {"start": "2013", "end": "2012-12-31"}}, "temporal.end", "is before the start, 2013; swap"),
        (
            {"temporal": {"start": "2013-01-01T12:00:00Z", "end": "2013-01-01T11:00:00Z"}},
            "temporal.end",
            "is before the start",
        ),
        ({"landing_page": "ttps://x.org/d"}, "landing_page", "whole address"),
        ({"conforms_to": ["x> . <urn:evil> <urn:p> <urn:o"]}, "conforms_to[0]", "can't hold >"),
        ({"source": "select 1"}, "source", "must be the name of a registered source"),
        ({"columns": [{"name": "a", "type": "text"}] * 2}, "columns", "has a more than once"),
        ({"columns": [{"name": "é" * 32, "type": "text"}]}, "columns[0].name", "63 bytes"),
        ({"title": {"en": "a\x0bb", "de": "c"}}, "title.en", "holds the character U+000B"),
        ({"title": {"en": "a\x00b", "de": "c"}}, "title.en", "holds the character U+0000"),
        ({"title": {"en": "a\ud800", "de": "c"}}, "title.en", "a lone surrogate"),
        ({"title": {"en": "a\uffff", "de": "c"}}, "title.en", "holds the character U+FFFF"),
        ({"title": {"en": "x" * 501, "de": "c"}}, "title.en", "can't have more than 500 characters"),
        ({"columns": [{"name": "a\nb", "type": "text"}]}, "columns[0].name", "can't hold a tab or a line break"),
        ({"columns": [{"name": "x" * 64, "type": "text"}]}, "columns[0].name", "with `from` for the source's"),
        (
            {"columns": [{"name": "a", "type": "text", "from": ""}]},
            "columns[0].from",
            "is empty; write the column's name",
        ),
        ({"columns": [{"name": "a", "type": "text", "from": "a\0"}]}, "columns[0].from", "holds the character U+0000"),
        ({"columns": [{"name": "a", "type": "text", "from": "\udc00"}]}, "columns[0].from", "a lone surrogate"),
        ({"columns": [{"name": "a", "type": "text", "from": "x" * 10_001}]}, "columns[0].from", "10000 characters"),
        (
            {"columns": [{"name": "a", "type": "text", "from": "é" * 32}], "key": ["a"]},
            "key",
            f'a store of the columns, where "{"é" * 32}" can\'t be a name: at most 63 bytes, no tab, no line break',
        ),
        (
            {"columns": [{"name": "a", "type": "text"}, {"name": "b", "type": "text", "from": "b\n"}], "key": ["a"]},
            "key",
            'where "b\\n" can\'t be a name',
        ),
        ({"source": 5}, "source", "must be a text"),
        ({"min_records": -1}, "min_records", "can't be less than 0"),
        ({"min_records": True}, "min_records", "must be a whole number, the fewest records that may be published"),
        ({"max_drop": 50}, "max_drop", "can't be more than 1"),
        ({"max_drop": "half"}, "max_drop", "must be a number, the largest part"),
        ({"max_drop": float("nan")}, "max_drop", "must be a number"),
    ],
)
def test_a_fault_names_field_and_remedy(changes, field, sentence):
    assert sentence in faults(**changes)[field]


def test_the_types_of_columns_are_those_that_can_be_exported():
    assert set(get_args(ColumnType)) == set(TYPES)


SPREADSHEETS = {"delimiter": "\t", "decimal": "."}
POINT = {"longitude": "year", "latitude": "height"}
WITH_HEIGHT = [{"name": "year", "type": "integer"}, {"name": "height", "type": "double"}]


def test_formats_beyond_the_usual_three_are_asked_for_and_have_their_own_options():
    told = definition(
        formats=["jsonl", "geojson", "csv-excel", "csv"],
        gzip=["jsonl", "csv"],
        csv_excel=SPREADSHEETS,
        columns=WITH_HEIGHT,
        geojson=POINT,
    )

    assert told.formats == ["csv", "csv-excel", "geojson", "jsonl"]
    assert told.gzip == ["csv", "jsonl"]
    assert told.place == POINT
    assert Definition.parse(told.as_json()).etag == told.etag


def test_what_was_defined_before_there_were_other_formats_has_the_etag_it_had():
    assert not {"gzip", "csv_excel", "geojson"} & definition().as_json().keys()
    assert definition().formats == ["csv", "json", "xml"]


def test_one_geometry_column_is_where_a_record_is_without_a_word():
    shape = [{"name": "year", "type": "integer"}, {"name": "shape", "type": "geometry", "srid": 25832}]

    assert definition(formats=["geojson"], columns=shape).place == {"geometry": "shape"}


@pytest.mark.parametrize(
    ("changes", "field", "sentence"),
    [
        ({"gzip": ["jsonl"]}, "gzip", "has jsonl, which isn't among the formats; add it there, too"),
        ({"gzip": True}, "gzip", 'must be a list, the formats to compress as well, e.g. ["csv"]'),
        ({"csv_excel": SPREADSHEETS}, "csv_excel", "isn't among the formats; add it there"),
        (
            {"formats": ["csv-excel"], "csv_excel": {"delimiter": ",", "decimal": ","}},
            "csv_excel.decimal",
            "is the delimiter, too",
        ),
        ({"formats": ["csv-excel"], "csv_excel": {"delimiter": "|"}}, "csv_excel.delimiter", "must be one of ,, ;, "),
        ({"formats": ["geojson"]}, "geojson", "is missing: name the columns, e.g. {longitude: lon, latitude: lat}"),
        ({"columns": WITH_HEIGHT, "geojson": POINT}, "geojson", "isn't among the formats; add it there"),
        ({"formats": ["geojson"], "geojson": {"longitude": "year"}}, "geojson", "longitude and latitude"),
        (
            {"formats": ["geojson"], "geojson": {"longitude": "year", "latitude": "y"}},
            "geojson",
            "names y, which isn't among the columns",
        ),
        (
            {"formats": ["geojson"], "geojson": {"longitude": "year", "latitude": "carrier"}},
            "geojson",
            "names carrier as its latitude, which must be of type decimal or double or integer",
        ),
        (
            {"columns": [{"name": "year", "type": "integer", "srid": 4326}]},
            "columns[0].srid",
            "is what a geometry is measured in, and this column is integer; take it out",
        ),
        ({"columns": [{"name": "g", "type": "geometry", "srid": 0}]}, "columns[0].srid", "can't be less than 1"),
    ],
)
def test_a_format_that_can_t_be_written_is_refused(changes, field, sentence):
    assert sentence in faults(**changes)[field]


def test_a_licence_of_somebody_else_s_list_keeps_its_address():
    assert definition(licence="https://office.example.org/terms").licence == "https://office.example.org/terms"


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("CC-BY 4.0", "CC_BY_4_0"),
        ("cc-by-sa-4.0", "CC_BYSA_4_0"),
        ("https://creativecommons.org/licenses/by/4.0/", "CC_BY_4_0"),
        ("http://creativecommons.org/licenses/by-nc-sa/3.0/legalcode", "CC_BYNCSA_3_0"),
        ("https://www.govdata.de/dl-de/by-2-0", "DLDE_BY_2_0"),
        ("http://publications.europa.eu/resource/authority/licence/CC0", "CC0"),
    ],
)
def test_OD_29_known_spellings_of_a_licence_are_its_code(written, code):
    assert definition(licence=written).licence == code


def test_each_list_tells_its_codes_and_spellings_apart():
    for vocabulary in (
        vocabularies.THEMES,
        vocabularies.LICENCES,
        vocabularies.FREQUENCIES,
        vocabularies.LANGUAGES,
        vocabularies.ACCESS_RIGHTS,
        vocabularies.PUBLISHER_TYPES,
    ):
        assert {vocabulary.code(code) for code in vocabulary.codes} == vocabulary.codes
        assert {vocabulary.code(vocabulary.iri(code)) for code in vocabulary.codes} == vocabulary.codes
        assert set(vocabulary.others.values()) <= vocabulary.codes


@pytest.mark.parametrize(
    ("said", "published", "fewest"),
    [
        ({}, None, 1),
        ({}, 5, 3),
        ({}, 100, 50),
        ({"max_drop": 0.7}, 10, 3),
        ({"max_drop": 0}, 100, 100),
        ({"max_drop": 1}, 100, 1),
        ({"max_drop": 1, "min_records": 0}, 100, 0),
        ({"min_records": 0}, 100, 50),
        ({"min_records": 80}, 100, 80),
        ({"min_records": 80}, None, 80),
    ],
)
def test_there_is_a_fewest_of_records(said, published, fewest):
    assert definition(**said).fewest(published) == fewest


def test_what_differs_is_named_by_field_and_column():
    before = definition(columns=[{"name": "a", "type": "text"}, {"name": "b", "type": "text"}]).as_json()

    def differing(**to):
        return [each.field for each in differences(before, definition(**to).as_json())]

    assert differing(columns=before["columns"]) == []
    assert differing(columns=before["columns"][::-1]) == ["columns (their order)"]
    assert differing(columns=[{"name": "a", "type": "date"}, {"name": "c", "type": "text"}]) == [
        "columns.a",
        "columns.b",
        "columns.c",
    ]
    assert differing(columns=before["columns"], min_records=5, licence="CC_BY_4_0") == ["licence", "min_records"]
    assert differences(before, before | {"title": before["title"] | {"fr": "Vols"}}) == [("title.fr", None, "Vols")]


def test_what_differs_has_both_its_values_a_column_as_a_whole():
    a, b = {"name": "a", "type": "text"}, {"name": "b", "type": "text"}
    before = definition(columns=[a, b], keywords={"en": ["x"]}, min_records=5).as_json()

    after = definition(columns=[a | {"type": "date"}, b], keywords={"en": ["y", "x"]}).as_json()
    assert sorted(differences(before, after)) == [
        ("columns.a", a, a | {"type": "date"}),
        ("keywords.en", ["x"], ["y", "x"]),
        ("min_records", 5, None),
    ]
    after = definition(columns=[b, a], keywords={"en": ["x"]}, min_records=5).as_json()
    assert differences(before, after) == [("columns (their order)", ["a", "b"], ["b", "a"])]


def test_a_number_or_a_truth_where_a_text_belongs_wants_quotes():
    assert faults(identifiers=[2013, True]) == {
        "identifiers[0]": "must be a text, and this is 2013; put it in quotes",
        "identifiers[1]": "must be a text, and this is true; put it in quotes",
    }


@pytest.mark.parametrize(
    "header", ["x" * LONGEST_HEADER, "Einwohner\r\n2023", "\ta\x01", " a ", "\x85\ufffe", '"', "🌳" * 100]
)
def test_from_is_any_header_of_a_source_letter_by_letter(header):
    told = definition(columns=[{"name": "a", "type": "text", "from": header}])

    assert told.columns[0].source_name == header
    assert Definition.parse(json.loads(told.canonical)).etag == told.etag


def test_no_file_has_a_longer_header_than_from_can_name():
    assert LONGEST_HEADER == files.LONGEST_HEADER


def test_each_header_gets_a_name_that_may_be_published_its_own_where_it_can():
    long = "Einwohnerinnen und Einwohner am Ort der Hauptwohnung (Österreich) "
    headers = [
        "Einwohner 2023",
        "Einwohner\n2023",
        "Einwohner\t\r\n2023",
        f"{long}1",
        f"{long}2",
        "ä" * 40,
        " a ",
        "\x01",
    ]

    names = published_names(headers)

    assert names == {
        "Einwohner 2023": "Einwohner 2023",
        "Einwohner\n2023": "Einwohner 2023 2",
        "Einwohner\t\r\n2023": "Einwohner 2023 3",
        f"{long}1": "Einwohnerinnen und Einwohner am Ort der Hauptwohnung (Österrei",
        f"{long}2": "Einwohnerinnen und Einwohner am Ort der Hauptwohnung (Österr 2",
        "ä" * 40: "ä" * 31,
        " a ": "a",
        "\x01": "column",
    }
    assert definition(columns=[{"name": name, "type": "text"} for name in names.values()])


@pytest.mark.parametrize("name", ["flights", "0", "a" * 63, "nyc-2013-"])
def test_a_dataset_has_a_name_that_can_stand_in_an_address(name):
    assert dataset_id(name) == name


@pytest.mark.parametrize("name", ["", "-a", "Flights", "a" * 64, "a_b", "a/b", "ä", "a\n"])
def test_any_other_name_of_a_dataset_is_refused(name):
    with pytest.raises(Invalid, match="id: must be 1 to 63"):
        dataset_id(name)


def test_no_byte_order_mark_is_what_a_definition_without_a_word_about_it_says():
    plain = Definition.parse(deepcopy(DEFINITION))

    assert plain.csv_bom is None
    assert Definition.parse(deepcopy(DEFINITION) | {"csv_bom": False}).etag == plain.etag
    assert Definition.parse(deepcopy(DEFINITION) | {"csv_bom": True}).as_json()["csv_bom"] is True
    (said,) = faults(csv_bom="yes").values()
    assert said.startswith("must be true or false")
