"""Loads on the real stack: the demo's, and those too large for a request, through the front port's presigned PUT."""

import hashlib
import json
import re
from pathlib import Path

import httpx
import pytest

from chalicelib.pipelines.load import upload_key
from localstack.stack import BUCKET, Stack

from .conftest import Run

ROWS = 70_000
DEFINITION = {
    "title": {"en": "Readings"},
    "description": {"en": "What the sensors say."},
    "keywords": {"en": ["sensors"]},
    "languages": ["en"],
    "publisher": {"name": {"en": "Office"}, "iri": "https://office.example.org/id"},
    "contact": {"name": {"en": "Open data desk"}, "email": "opendata@example.org"},
    "themes": ["ENVI"],
    "licence": "CC0",
    "source": "readings",
    "columns": [
        {"name": "id", "type": "integer"},
        {"name": "street", "type": "text", "required": True},
        {"name": "measured", "type": "timestamptz"},
        {"name": "value", "type": "decimal"},
    ],
    "key": ["id"],
}


def test_the_demo_pushes_rows_once_and_publishes_them(first: tuple[str, int], run: Run, http: httpx.Client) -> None:
    output = run("demo", "load")

    assert "202 Accepted" in output
    assert "loaded: 1,458 rows, 1,458 inserted" in output
    assert "the same request again is the same load" in output
    assert "uploaded as the whole content: 1,458 rows, 0 inserted, 0 updated, 0 deleted" in output
    lines = http.get("/datasets/airports/files/airports.csv").text.splitlines()
    assert lines[0] == "faa,name,lat,lon,alt,tz,dst,tzone"
    assert len(lines) - 1 == 1458


@pytest.fixture(scope="module")
def readings(first: tuple[str, int], run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A dataset that takes loads."""
    definition = tmp_path_factory.mktemp("readings") / "readings.json"
    definition.write_text(json.dumps(DEFINITION))
    run("source", "register", "readings", "--store", "readings")
    run("definition", "put", "readings", str(definition))


@pytest.mark.usefixtures("readings")
def test_what_is_too_large_for_a_request_goes_through_the_front_port_into_the_store_once(
    run: Run, http: httpx.Client, tmp_path: Path
) -> None:
    file = tmp_path / "readings.csv"
    lines = [f"{n};Straße Nr. {n % 90};2026-11-30 06:00:00+01;{n},50" for n in range(ROWS)]
    content = "\n".join(["id;street;measured;value", *lines, ""]).encode("cp1252")
    assert len(content) > 3_000_000
    file.write_bytes(content)

    dialect = ("--encoding", "windows-1252", "--delimiter", ";", "--decimal", ",")
    for _ in range(2):  # another load would find all rows there
        loaded = run("load", "readings", str(file), *dialect, "--key", "monday")
        assert f"Loaded into readings: {ROWS:,} rows, {ROWS:,} inserted" in loaded

    version = re.search(r"Published version (\d+)", run("publish", "readings", "--wait"))
    assert version
    published = http.get(f"/datasets/readings/versions/{version[1]}/files/readings.csv").text.splitlines()
    assert len(published) - 1 == ROWS
    assert published[1] == "0,Straße Nr. 0,2026-11-30T05:00:00Z,0.50"


@pytest.mark.usefixtures("readings")
def test_object_storage_takes_no_other_file_than_was_announced(stack: Stack, http: httpx.Client) -> None:
    token = (stack.folder / "tokens" / "publisher").read_text().strip()
    content, other = b"id,street\n1,a\n", b"id,street\n1,b\n"
    announced = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    address = "/datasets/readings/loads/uploads"
    upload = http.post(address, json=announced, headers={"Authorization": f"Bearer {token}"}).json()

    for sent, status in ((other, 400), (content, 200), (other, 400)):
        assert httpx.put(upload["url"], content=sent, headers=upload["headers"]).status_code == status
    assert httpx.put(upload["url"], content=content).status_code == 403
    held = stack.client("s3").get_object(Bucket=BUCKET, Key=upload_key(upload["id"]))
    assert held["Body"].read() == content
