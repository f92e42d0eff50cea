"""Geometries of a real PostGIS, in each format."""

import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from psycopg import sql

from chalicelib.exports import CSV, JSON, XML, Column, FileSpec, Relation, SourceError, Store
from chalicelib.exports.check import Wanted, check
from chalicelib.exports.formats import JSON_LINES, STAGING, excel_csv, geojson
from chalicelib.exports.relation import snapshot
from chalicelib.exports.types import type_of
from localstack.postgresql import account
from tests.debian import NotToBeHad

from .conftest import Source
from .memory import MemoryS3
from .postgis import PostGIS
from .readers import read_csv, read_excel, read_features, read_json, read_xml
from .test_records import files_of, hostile
from .test_staged import by_way_of_the_copy, copied, directly, own  # noqa: F401 - a fixture

SPECS = [FileSpec(format_) for format_ in (CSV, JSON, XML, JSON_LINES, geojson(geometry="g"), excel_csv())]


@pytest.fixture(scope="session")
def server():
    folder = Path(tempfile.mkdtemp(prefix="leaseway-postgis-"))
    os.chown(folder, account().uid, account().gid)
    try:
        made = PostGIS(folder)
    except NotToBeHad as error:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.skip(f"there is no PostGIS: {error}")
    made.start()
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", params=["public", "Geo Functions"])
def extended(server, request):
    """A source whose PostGIS stands in a schema that its reader's search_path needn't name."""
    made = Source(server.dsn, "")
    schema = sql.Identifier(request.param)
    made.run(sql.SQL("create schema if not exists {}").format(schema))
    made.run(sql.SQL("create extension postgis schema {}").format(schema))
    made.run(sql.SQL("grant usage on schema {} to public").format(schema))
    made.run(sql.SQL("set search_path = {}").format(schema))
    hostile(made)
    made.run("drop operator nowhere.= (int, int)")  # PostGIS itself looks up an SRID by its name alone
    yield made
    made.drop()


@pytest.fixture
def source(extended):
    yield extended
    extended.run("drop table if exists open.shapes, open.many")


def shapes(source, *values, type_="geometry", srid=0):
    """A relation of these shapes (as EWKT), in this order."""
    source.run(f"create table open.shapes (n int, g {type_})")
    for n, value in enumerate(values):
        source.run(f"insert into open.shapes values (%s, %s::{type_})", n, value)
    columns = [Column("n", "integer", "n"), Column("g", "geometry", "g", srid=srid)]
    return Relation(source.dsn, "open.shapes", None, columns)


def numbers(value):
    """JSON's numbers, which the strict reader leaves as digits, as floats."""
    return json.loads(json.dumps(value), parse_float=float) if value is None else _numbers(value)


def _numbers(value):
    if isinstance(value, dict):
        return {name: each if name == "type" else _numbers(each) for name, each in value.items()}
    return [_numbers(each) for each in value] if isinstance(value, list) else float(value)


def test_a_geometry_is_wkt_in_csv_and_xml_and_geojson_in_the_others(source, tmp_path):
    relation = shapes(
        source,
        "SRID=4326;POINT(9.18 48.78)",
        "SRID=4326;POINT ZM (1 2 3 4)",  # a measure is no place
        "SRID=4326;POINTM (1 2 4)",
        "SRID=4326;POLYGON((0 0, 0 1, 1 1, 0 0))",  # clockwise, which RFC 7946 doesn't take
        "SRID=4326;GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 1))",
        "SRID=4326;POINT EMPTY",
        "SRID=4326;LINESTRING(9 9, 1 1)",  # a river keeps its direction
        "SRID=4326;POINT(-180 90)",
        "SRID=4326;LINESTRING(179 0, -179 0)",  # isn't cut at the antimeridian
        "SRID=4326;GEOMETRYCOLLECTION ZM (POINT ZM EMPTY, MULTIPOLYGON ZM EMPTY, POINT ZM (1 2 3 4))",
        "SRID=4326;GEOMETRYCOLLECTION(POINT EMPTY)",
        "SRID=4326;POINT Z (1 2 1e30)",
        "SRID=4326;MULTIPOLYGON(((0 0, 0 1, 1 1, 0 0)))",
        None,
    )

    _, contents = files_of(relation, tmp_path, specs=SPECS)

    wkt = [
        "POINT(9.18 48.78)",
        "POINT Z (1 2 3)",
        "POINT(1 2)",
        "POLYGON((0 0,1 1,0 1,0 0))",
        "GEOMETRYCOLLECTION(POINT(1 2),LINESTRING(0 0,1 1))",
        "POINT EMPTY",
        "LINESTRING(9 9,1 1)",
        "POINT(-180 90)",
        "LINESTRING(179 0,-179 0)",
        "GEOMETRYCOLLECTION Z (POINT Z EMPTY,MULTIPOLYGON Z EMPTY,POINT Z (1 2 3))",
        "GEOMETRYCOLLECTION(POINT EMPTY)",
        "POINT Z (1 2 1e+30)",
        "MULTIPOLYGON(((0 0,1 1,0 1,0 0)))",
        None,
    ]
    for read, name in ((read_csv, "csv"), (read_xml, "xml"), (read_excel, "excel.csv")):
        assert [record["g"] for record in read(contents[name])] == wkt, name
    found = [numbers(geometry) for geometry, _ in read_features(contents["geojson"])]
    assert found == [numbers(record["g"]) for record in read_json(contents["json"])]
    assert contents["jsonl"].count(b"\n") == len(wkt)
    assert found[0] == {"type": "Point", "coordinates": [9.18, 48.78]}
    assert found[1] == {"type": "Point", "coordinates": [1, 2, 3]}
    assert found[3] == {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 1], [0, 0]]]}
    assert found[4]["geometries"][1] == {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}
    assert [shape["type"] for shape in found[9]["geometries"]] == ["Point", "MultiPolygon", "Point"]
    assert found[10] == {"type": "GeometryCollection", "geometries": []}
    assert found[12]["coordinates"] == [found[3]["coordinates"]]
    assert found[-1] is None
    assert [list(properties) for _, properties in read_features(contents["geojson"])] == [["n"]] * len(wkt)


def test_every_srid_becomes_wgs_84_longitude_first(source, tmp_path):
    relation = shapes(source, "SRID=25832;POINT(500000 5500000)", "SRID=3857;POINT(1001875.41713946 6274861.39400658)")

    _, contents = files_of(relation, tmp_path, specs=SPECS)

    assert [record["g"] for record in read_csv(contents["csv"])] == ["POINT(9 49.652542924)", "POINT(9 49)"]
    shaped = [record["g"]["coordinates"] for record in read_json(contents["json"])]
    assert shaped == [["9", "49.652542924"], ["9", "49"]]


def test_the_order_is_that_of_the_wkt(source, tmp_path):
    relation = shapes(source, "SRID=4326;POINT(9 1)", "SRID=4326;POINT(10 1)")

    _, contents = files_of(replace(relation, columns=relation.columns[1:]), tmp_path, specs=SPECS[:1])

    assert [record["g"] for record in read_csv(contents["csv"])] == ["POINT(10 1)", "POINT(9 1)"]


def test_what_has_no_srid_has_the_declared_one(source, tmp_path):
    relation = shapes(source, "POINT(500000 5500000)", "SRID=4326;POINT(1 2)", srid=25832)

    _, contents = files_of(relation, tmp_path, specs=SPECS)

    assert [record["g"] for record in read_csv(contents["csv"])] == ["POINT(9 49.652542924)", "POINT(1 2)"]


@pytest.mark.parametrize(
    "bad",
    [
        "POINT(9 49)",
        "SRID=4326;POINT(500000 5500000)",
        "SRID=4326;POINT(180.01 0)",
        "SRID=4326;POINT(-180.01 0)",
        "SRID=4326;POINT(0 90.01)",
        "SRID=4326;POINT(0 -90.01)",
        "SRID=4326;CIRCULARSTRING(0 0, 1 1, 2 0)",
        "SRID=4326;GEOMETRYCOLLECTION(POINT(1 2), CIRCULARSTRING(0 0, 1 1, 2 0))",
        "SRID=4326;GEOMETRYCOLLECTION(CURVEPOLYGON((0 0, 1 0, 1 1, 0 0)))",
        "SRID=4326;TRIANGLE((0 0, 0 1, 1 1, 0 0))",
        "SRID=4326;POINT(NaN 1)",
        "SRID=4326;POINT Z (1 2 NaN)",
        "SRID=4326;LINESTRING(0 0, NaN NaN, 1 1)",
        "SRID=4326;MULTIPOINT(EMPTY, 1 2)",  # RFC 7946 has no position without numbers
        "SRID=4326;MULTIPOLYGON(EMPTY)",  # nor a polygon without rings in another, though all of it is empty
        "SRID=4326;GEOMETRYCOLLECTION(GEOMETRYCOLLECTION(POINT(1 2)))",
        "SRID=4326;GEOMETRYCOLLECTION(TRIANGLE((0 0, 0 1, 1 1, 0 0)))",
        "SRID=25832;POINT(5e30 5500000)",
        "SRID=999999;POINT(1 2)",
    ],
)
def test_what_is_no_place_on_the_earth_is_a_bad_record_whichever_format_is_asked_for(source, tmp_path, bad):
    relation = shapes(source, "SRID=4326;POINT(1 2)", bad)

    for spec in SPECS:
        with pytest.raises(SourceError) as raised:
            files_of(relation, tmp_path, specs=[spec])
        assert raised.value.code == "source_bad_record", spec.format.name
        assert (raised.value.details["record"], raised.value.details["column"]) == (2, "g")
    with pytest.raises(SourceError) as raised, snapshot(relation) as seen:
        list(seen.records(STAGING))
    assert raised.value.code == "source_bad_record"


def test_a_geography_is_a_geometry_too(source, tmp_path):
    relation = shapes(source, "POINT(9 49)", type_="geography")

    _, contents = files_of(relation, tmp_path, specs=SPECS)

    assert read_xml(contents["xml"]) == [{"n": "0", "g": "POINT(9 49)"}]


def test_by_way_of_a_copy_on_a_server_without_postgis_the_files_are_the_same(source, own, tmp_path):  # noqa: F811
    relation = shapes(
        source,
        "SRID=4326;POINT(9.18 48.78)",
        "SRID=25832;POINT(500000 5500000)",
        "POINT(500000 5500000)",  # what has no SRID
        "SRID=4326;POINT ZM (1 2 3 4)",
        "SRID=4326;MULTIPOLYGON(((0 0, 0 1, 1 1, 0 0)))",
        "SRID=4326;GEOMETRYCOLLECTION(POINT(1 2), LINESTRING(0 0, 1 1))",
        "SRID=4326;POINT EMPTY",
        "SRID=4326;GEOMETRYCOLLECTION Z (POINT Z EMPTY, POINT Z (1 2 3))",
        None,
        srid=25832,
    )
    exported, expected = directly(relation, tmp_path, SPECS)

    copy = copied(relation, own)
    s3 = MemoryS3()
    files, contents, removed = by_way_of_the_copy(relation, own, Store("files", lambda: s3), s3, SPECS, copy.records)

    assert contents == expected
    assert (copy.records, removed) == (exported.records, exported.removed)
    assert [(file.suffix, file.sha256) for file in files] == [(file.suffix, file.sha256) for file in exported.files]
    numbered = [record["n"] for record in read_csv(contents[0])]
    assert sorted(numbered) == numbered
    assert len(numbered) == 9


def test_a_geometry_is_proposed_and_can_be_checked_and_an_array_of_them_is_not(source):
    shapes(source, "SRID=4326;POINT(9 49)")
    source.run("create table open.many (g geometry[], b box2d)")

    with snapshot(Relation(source.dsn, "open.shapes", None, [])) as seen:
        assert [type_of(found) for _, found in seen.describe()] == ["integer", "geometry"]
    with snapshot(Relation(source.dsn, "open.many", None, [])) as seen:
        assert [type_of(found) for _, found in seen.describe()] == [None, None]
    report = check(source.dsn, [Wanted("shapes", "open.shapes", None, [Column("g", "geometry", "g")])])
    assert report.sources == {"shapes": "reads 1 column"}
