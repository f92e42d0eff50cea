"""The demo's own parts that need no stack."""

import hashlib

import pytest

from chalicelib.cli import demo, show
from chalicelib.cli.remote import Refused
from chalicelib.datasets.definition import Definition

from .conftest import Server


def test_the_definition_of_the_flights_is_valid_and_complete_in_two_languages() -> None:
    definition = Definition.parse(demo.definition())

    assert len(definition.columns) == 19
    assert set(definition.title) == {"en", "de"}
    assert all(
        set(column.title or {}) == {"en", "de"} == set(column.description or {}) for column in definition.columns
    )
    left_out = {name for name, value in definition if value in (None, [])}
    rare = {"conforms_to", "min_records", "max_drop", "csv_bom", "csv_excel", "gzip", "geojson", "key"}
    assert left_out <= rare


def test_a_file_is_what_the_record_says_or_the_demo_fails(server: Server) -> None:
    server.tell("GET /file.csv", "a,b\n1,2\n")
    said = {"url": f"{server.url}/file.csv", "bytes": 8, "sha256": hashlib.sha256(b"a,b\n1,2\n").hexdigest()}

    demo.check(said)
    with pytest.raises(Refused, match="isn't what the record says"):
        demo.check(said | {"sha256": hashlib.sha256(b"").hexdigest()})
    with pytest.raises(Refused, match="isn't what the record says"):
        demo.check(said | {"bytes": 9})


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (31_249_999, "31.2 MB"),
        (999_960, "1.0 MB"),
        (5 * 10**12, "5000.0 GB"),
    ],
)
def test_sizes_as_people_say_them(octets: int, said: str) -> None:
    assert show.size(octets) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.4, "0 s"), (59.9, "59 s"), (60, "1 min"), (61, "1 min 1 s"), (7200, "2 h"), (90_061, "1 d 1 h")],
)
def test_durations_in_two_units(seconds: float, said: str) -> None:
    assert show.span(seconds) == said
