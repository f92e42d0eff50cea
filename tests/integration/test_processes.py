"""What takes a Python of its own: what each start imports, and the same bytes from another process."""

import subprocess
import sys

import pytest

from chalicelib.catalog.entry import render
from tests.unit.catalog.flights import CHECKOUT, definition, facts


def run(program: str, **more: dict[str, str]) -> str:
    command = [sys.executable, "-c", program]
    return subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True, **more).stdout


@pytest.mark.parametrize(
    ("started", "without"),
    [
        # the API's cold start
        ("chalicelib.api", {"rdflib", "pyshacl", "boto3", "botocore", "urllib3", "requests"}),
        # an office laptop: no database, no AWS, no app
        ("chalicelib.cli", {"psycopg", "boto3", "botocore", "chalice", "pydantic", "rdflib"}),
        ("chalicelib.datasets.definition", {"rdflib", "pyshacl"}),
        ("chalicelib.catalog.negotiation", {"rdflib", "pyshacl"}),
        ("chalicelib.catalog.store", {"rdflib", "pyshacl"}),
    ],
)
def test_what_is_started_often_starts_without(started: str, without: set[str]) -> None:
    loaded = run(f"import sys, {started}; print(*{{name.partition('.')[0] for name in sys.modules}})").split()

    assert started.partition(".")[0] in loaded
    assert without & set(loaded) == set()


def test_OD_39_another_process_gives_the_same_bytes_in_every_format() -> None:
    program = (
        "from tests.unit.catalog.flights import definition, facts\n"
        "from chalicelib.catalog.entry import render\n"
        "print(ascii(list(render(definition(), facts()).documents.items())))"
    )
    here = ascii(list(render(definition(), facts()).documents.items()))

    assert run(program, env={"PYTHONHASHSEED": "7"}) == f"{here}\n"
