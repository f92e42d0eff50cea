"""Every format that a definition may ask for, from there to the catalogue."""

import gzip
import json

import psycopg
import pytest
import rdflib

from chalicelib.catalog.entry import DCAT, DCT
from chalicelib.datasets import registry

EVERY = {
    "formats": ["csv", "csv-excel", "geojson", "json", "jsonl", "xml"],
    "gzip": ["csv", "jsonl"],
    "csv_excel": {"delimiter": "\t", "decimal": ","},
    "geojson": {"longitude": "lon", "latitude": "lat"},
    "columns": [
        {"name": "id", "type": "integer"},
        {"name": "lon", "type": "decimal"},
        {"name": "lat", "type": "decimal"},
        {"name": "tags", "type": "text[]"},
    ],
}
NAMES = [
    "trees.csv",
    "trees.csv.gz",
    "trees.excel.csv",
    "trees.geojson",
    "trees.json",
    "trees.jsonl",
    "trees.jsonl.gz",
    "trees.xml",
]


@pytest.fixture
def places(office, admin_database_dsn):
    """Trees that stand somewhere."""
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("alter table src.trees add lon numeric, add lat numeric, add tags text[] default '{oak}'")
        admin.execute("update src.trees set lon = 9.5, lat = 48.5 where id <> 7")
    return office


def test_each_format_is_a_file_and_a_distribution_under_its_name(places):
    places.define(**EVERY)
    places.publish()
    places.run(2)

    version = registry.version(places.db, "trees", 1)
    assert [file["name"] for file in version["files"]] == NAMES
    contents = {file["name"]: places.content(file["key"]) for file in version["files"]}
    for name in ("trees.csv", "trees.jsonl"):
        assert gzip.decompress(contents[f"{name}.gz"]) == contents[name]
    assert contents["trees.excel.csv"].startswith(b"\xef\xbb\xbfid\tlon\tlat\ttags\r\n1\t9,5\t48,5\t")
    lines = [json.loads(line) for line in contents["trees.jsonl"].splitlines()]
    assert lines == json.loads(contents["trees.json"])
    features = json.loads(contents["trees.geojson"])["features"]
    assert [feature["properties"] for feature in features] == lines
    assert [feature["properties"]["id"] for feature in features if feature["geometry"] is None] == [7]

    graph = rdflib.Graph().parse(data=version["documents"]["nt"], format="nt")
    addresses = "http://localhost:4000/datasets/trees/versions/1/files"
    distributions = {str(graph.value(node, DCAT.downloadURL)): node for node in graph.subjects(DCAT.downloadURL)}
    assert sorted(distributions) == [f"{addresses}/{name}" for name in NAMES]
    zipped, plain = (distributions[f"{addresses}/{name}"] for name in ("trees.jsonl.gz", "trees.jsonl"))
    assert str(graph.value(zipped, DCAT.compressFormat)).endswith("/media-types/application/gzip")
    assert graph.value(plain, DCAT.compressFormat) is None
    assert set(map(str, graph.objects(zipped, DCT.conformsTo))) == {
        f"{addresses}/trees.schema.json#/$defs/record",
        "https://jsonlines.org/",
    }


def test_a_place_beyond_the_earth_fails_the_publication_with_its_record(places, admin_database_dsn):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("update src.trees set lat = 948.5 where id = 7")
    places.define(**EVERY)
    job = places.publish()
    places.run(2)

    failure = places.engine.status(job)
    assert failure.code == "source_bad_record"
    assert failure.details["column"] == "lat"
    places.run(15)
    assert places.files() == []


def test_a_failed_format_leaves_no_file_of_the_others(places, admin_database_dsn):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("update src.trees set tags = '{{a},{b}}' where id = 9")
    places.define(**EVERY)
    job = places.publish()
    places.run(2)

    failure = places.engine.status(job)
    assert (failure.code, failure.details["column"]) == ("source_bad_record", "tags")
    places.run(15)
    assert (places.files(), places.uploads()) == ([], [])
