"""What a data service is told is what its contract says, for every format and every option of one."""

from typing import Any, get_args
from uuid import UUID

import pytest

from chalicelib.datasets.definition import Format
from chalicelib.exports.data_service import RemoteDataService
from chalicelib.pipelines.publication import PublicationSubject
from chalicelib.pipelines.publication.copying import wanted
from tests.data_service.server import TOKEN, schema, serving
from tests.unit.catalog.flights import definition

COLUMNS = [
    {"name": "n", "type": "integer"},
    {"name": "lon", "type": "decimal"},
    {"name": "lat", "type": "double"},
    {"name": "shape", "type": "geometry", "srid": 25832, "from": "the_geom"},
    {"name": "names", "type": "text[]", "from": "Einwohner\n" * 10},
]
FORMATS = list(get_args(Format))
SUBJECT = PublicationSubject(dataset="flights", definition=3, source="flights", source_revision=2)


def sent(**said: Any) -> dict[str, Any]:
    """The body of the request that starts such a definition's export."""
    asked = wanted(UUID(int=7), SUBJECT, definition(columns=COLUMNS, **said))
    with serving() as server:
        RemoteDataService(server.url, TOKEN).start(asked, fence=9)
    assert server.faults == []
    [body] = server.bodies
    return body


@pytest.mark.parametrize(
    ("said", "options"),
    [
        ({"formats": ["csv"]}, {}),
        ({"formats": ["csv"], "csv_bom": True}, {"bom": True}),
        ({"formats": ["csv-excel"]}, {}),
        ({"formats": ["csv-excel"], "csv_excel": {}}, {"delimiter": ";", "decimal": ","}),
        (
            {"formats": ["csv-excel"], "csv_excel": {"delimiter": "\t", "decimal": "."}},
            {"delimiter": "\t", "decimal": "."},
        ),
        ({"formats": ["geojson"]}, {"geometry": "shape"}),
        ({"formats": ["geojson"], "geojson": {"geometry": "shape"}}, {"geometry": "shape"}),
        (
            {"formats": ["geojson"], "geojson": {"longitude": "lon", "latitude": "lat"}},
            {"longitude": "lon", "latitude": "lat"},
        ),
        ({"formats": ["json"]}, {}),
        ({"formats": ["jsonl"]}, {}),
        ({"formats": ["xml"]}, {}),
    ],
)
def test_every_formats_options_are_sent_as_the_contract_has_them(said, options):
    body = sent(gzip=said["formats"], **said)

    assert list(schema("Wanted").iter_errors(body)) == []
    assert [file.get("options", {}) for file in body["files"]] == [options] * 2
    assert body["columns"][3] == {"name": "shape", "type": "geometry", "source": "the_geom", "srid": 25832}


def test_all_formats_at_once_are_files_of_one_export():
    body = sent(formats=FORMATS, gzip=FORMATS)
    assert list(schema("Wanted").iter_errors(body)) == []
    assert {file["format"] for file in body["files"]} == set(FORMATS)


@pytest.mark.parametrize(
    ("format_", "options"),
    [
        ("csv", {"delimiter": ";"}),
        ("csv", {"bom": "yes"}),
        ("csv-excel", {"bom": True}),
        ("csv-excel", {"delimiter": "|"}),
        ("geojson", {}),
        ("geojson", {"longitude": "lon"}),
        ("geojson", {"geometry": "shape", "longitude": "lon", "latitude": "lat"}),
        ("xml", {"bom": True}),
        ("parquet", {}),
    ],
)
def test_the_contract_has_no_other_options(format_, options):
    body = sent(formats=["csv"])
    body["files"][0] |= {"format": format_, "options": options}
    assert list(schema("Wanted").iter_errors(body))
