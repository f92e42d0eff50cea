"""The whole thing, on the real stack: published over the front port, killed in the middle, killed altogether."""

import csv
import hashlib
import json
import os
import re
import signal
import time
import xml.etree.ElementTree as ElementTree
from contextlib import suppress
from typing import Any

import httpx
import psutil
from rdflib import Graph, Namespace, URIRef

from localstack.stack import Stack

from .conftest import Run, Ticks, published

DCAT = Namespace("http://www.w3.org/ns/dcat#")
SPDX = Namespace("http://spdx.org/rdf/terms#")
RECORDS = 336_776

Published = tuple[str, int]


def record(http: httpx.Client, version: int) -> dict[str, Any]:
    answer = http.get(f"/datasets/flights/versions/{version}", headers={"Accept": "application/json"})
    assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def versions(http: httpx.Client) -> list[int]:
    return [found["version"] for found in http.get("/datasets/flights/versions").json()["versions"]]


def answers(http: httpx.Client, version: int) -> list[tuple[str, int, str]]:
    """What the public addresses of a version say: its documents and one file whole, the other files by HEAD."""
    base, files = f"/datasets/flights/versions/{version}", record(http, version)["files"]
    documents = [f"{base}.ttl", f"{base}.jsonld", f"{base}.rdf"]
    whole = [http.get(address) for address in (*documents, *(f["url"] for f in files if f["format"] == "csv"))]
    heads = [http.head(file["url"]) for file in files]
    return [
        *((str(answer.request.url.path), answer.status_code, _sha256(answer)) for answer in whole),
        *((str(answer.request.url.path), answer.status_code, answer.headers["ETag"]) for answer in heads),
    ]


def _sha256(answer: httpx.Response) -> str:
    return hashlib.sha256(answer.content).hexdigest()


def held(stack: Stack) -> tuple[list[str], list[str]]:
    """The graphs of the triple store, and the versions that the flights' entry names as its own."""
    entry = f"{stack.url}/datasets/flights"

    def ask(query: str) -> list[str]:
        answer = httpx.post(
            stack.environment()["LEASEWAY_TRIPLE_STORE_QUERY_URL"],
            content=query,
            headers={"Content-Type": "application/sparql-query", "Accept": "application/sparql-results+json"},
        )
        return [row["x"]["value"] for row in answer.raise_for_status().json()["results"]["bindings"]]

    return (
        ask("SELECT DISTINCT ?x WHERE { GRAPH ?x { ?s ?p ?o } }"),
        ask(f"SELECT ?x WHERE {{ GRAPH <{entry}> {{ <{entry}> <{DCAT['version']}> ?x }} }}"),
    )


def test_the_first_command_publishes_the_flights_and_says_where_to_look(
    first: Published, http: httpx.Client, stack: Stack
) -> None:
    output, version = first
    files = record(http, version)["files"]

    assert "202 Accepted" in output
    assert re.search(rf"Location: {stack.url}/publications/[0-9a-f-]{{36}}", output)
    assert "Retry-After: 2" in output
    assert "PUBLISHED, 336,776 of 336,776 records" in output
    assert sorted(file["format"] for file in files) == ["csv", "json", "xml"]
    for file in files:
        assert file["url"] in output
        assert file["sha256"] in output
    for suffix, media_type in {
        "": "text/turtle",
        ".jsonld": "application/ld+json",
        ".rdf": "application/rdf+xml",
    }.items():
        assert http.get(f"/datasets/flights{suffix}").headers["Content-Type"].startswith(media_type)
    assert f"{stack.url}/datasets/flights" in http.get("/catalog").text
    assert http.get("/health").status_code == 200


def test_OD_34_OD_66_OD_77_what_the_catalogue_says_of_a_file_holds_for_the_bytes_served(
    first: Published, http: httpx.Client, stack: Stack
) -> None:
    _, version = first
    entry = Graph().parse(data=http.get(f"/datasets/flights/versions/{version}.ttl").text, format="turtle")
    said = {
        str(entry.value(distribution, DCAT.downloadURL)): (
            int(str(entry.value(distribution, DCAT.byteSize))),
            str(entry.value(entry.value(distribution, SPDX.checksum), SPDX.checksumValue)),
        )
        for distribution in entry.objects(URIRef(f"{stack.url}/datasets/flights"), DCAT.distribution)
    }
    assert len(said) == 3

    for address, (size, checksum) in said.items():
        body = http.get(address).content
        assert (len(body), hashlib.sha256(body).hexdigest()) == (size, checksum)
        head = http.head(address)
        assert (head.status_code, int(head.headers["Content-Length"])) == (200, size)
        if address.endswith(".csv"):
            assert sum(1 for _ in csv.reader(body.decode().splitlines())) == RECORDS + 1
        if address.endswith(".xml"):
            assert len(ElementTree.fromstring(body)) == RECORDS


def test_a_second_run_publishes_the_next_version_and_keeps_the_first(
    first: Published, second: Published, http: httpx.Client, stack: Stack
) -> None:
    _, before = first
    _, after = second

    assert after == before + 1
    assert not record(http, before)["current"]
    assert record(http, after)["current"]
    for file in record(http, before)["files"]:
        assert _sha256(http.get(file["url"])) == file["sha256"]
    assert held(stack) == ([f"{stack.url}/datasets/flights"], [str(after)])


def test_a_worker_killed_in_the_export_and_in_PERSIST_DATA_changes_nothing_but_the_time(
    second: Published, run: Run, http: httpx.Client, stack: Stack, ticks: Ticks
) -> None:
    _, before = second

    with ticks():
        output, version = published(run("demo", "--crash"))

    assert output.count("SIGKILL for process") == 2
    assert version == before + 1
    assert record(http, version)["records"] == RECORDS
    assert held(stack)[1] == [str(version)]
    assert re.search(r"No file and no open upload of the lost claim \d+ is left\.", output)


def test_a_SIGKILL_of_everything_loses_nothing(
    second: Published, run: Run, http: httpx.Client, stack: Stack, ticks: Ticks
) -> None:
    _, version = second
    run("schedule", "set", "flights", "--every", "day", "--at", "02:00", "--zone", "Europe/Berlin")
    before, schedules = answers(http, version), run("schedule", "list", "--json")
    next_version = max(versions(http)) + 1
    job = json.loads(run("publish", "flights", "--json"))["id"]
    until = time.monotonic() + 120
    while json.loads(run("jobs", "list", "--pipeline", "export", "--status", "running", "--json")) == []:
        assert time.monotonic() < until, "no worker was seen to own the export"  # the command takes its time by itself

    kill_everything(stack)
    run("up")

    assert answers(http, version) == before
    assert run("schedule", "list", "--json") == schedules
    with ticks():
        ended = wait_for_end(run, job)
    assert (ended["status"], ended["version"]) == ("succeeded", next_version)
    assert record(http, next_version)["current"]
    run("schedule", "delete", "flights")


def wait_for_end(run: Run, job: str) -> dict[str, Any]:
    """Look at a job until it has ended; the commands pace themselves."""
    until = time.monotonic() + 240
    while time.monotonic() < until:
        found: dict[str, Any] = json.loads(run("jobs", "show", job, "--json"))
        if found["status"] in ("succeeded", "failed"):
            return found
    raise AssertionError(f"{job} hasn't ended: {found}")


def kill_everything(stack: Stack) -> None:
    """What a power cut does: every process of this stack is gone at once, without a word."""
    mine = {stack.postgresql.pid()} if stack.postgresql else set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("LEASEWAY_SERVICE", "").startswith(f"{stack.folder}:"):
                mine.add(process.pid)
    victims = [child for pid in mine for child in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]]
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
    psutil.wait_procs(victims, timeout=10)
    assert not any(stack.status().values())
