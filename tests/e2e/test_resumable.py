"""3,000,000 records in functions of 20 seconds, two of them killed on the way: the files of an undisturbed run."""

import hashlib
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from chalicelib.cli import crash
from localstack.deploy import function_name
from localstack.stack import Stack

from .conftest import SETTINGS, Run, Ticks

RECORDS = 3_000_000
SECONDS = 20
DEFINITION = """
title: {en: Counts}
description: {en: Three million counts of what passes by.}
keywords: {en: [numbers]}
languages: [en]
publisher: {name: {en: Office}, iri: "https://office.example.org/id"}
contact: {name: {en: Open data desk}, email: opendata@example.org}
themes: [TRAN]
licence: CC0
source: counts
formats: [csv, csv-excel, geojson, json, jsonl, xml]
gzip: [csv, csv-excel, geojson, json, jsonl, xml]
geojson: {longitude: lon, latitude: lat}
columns:
  - {name: n, type: integer}
  - {name: note, type: text}
  - {name: lon, type: decimal}
  - {name: lat, type: decimal}
  - {name: at, type: timestamptz}
  - {name: more, type: json}
"""

# In no order, and one in ten with whatever some format has to quote, escape, mark or leave out.
COUNTS = rf"""
create table counts as
select (n * 7919::bigint % {RECORDS})::int as n
     , case n % 50
            when 0 then e'"so", <b>&;\r\n\u000b🚲' when 1 then '' when 2 then '=1+1' when 3 then null
            else 'bikes' end as note
     , (n % 36000 - 18000) * 0.01 as lon
     , case when n % 50 <> 4 then (n % 18000 - 9000) * 0.001 end as lat
     , timestamptz '2024-03-31 00:30:00+00' + n * interval '0.5 s' as at
     , case n % 50 when 0 then e'{{"a":\n [1.50, "<"]}}' else '1' end::json as more
  from generate_series(1, {RECORDS}) as n;
grant select on counts to counts_reader
"""

PATIENCE = 900
"""Seconds until it counts as hung: nothing here fails because a machine is slow."""

WRITING = """
select id, claim_id
  from engine.job
 where pipeline = 'export' and claim_id is not null and finished_at is null
   and (checkpoint #>> '{value,specs}')::int >= %s
   and jsonb_array_length(checkpoint #> '{value,current,outputs,0,parts}') > 0
"""

Admin = psycopg.Connection[dict[str, Any]]


@pytest.fixture
def counts(stack: Stack, run: Run, environment: dict[str, str], tmp_path: Path) -> Iterator[Admin]:
    """The records in a database of their own, and their definition; an administrator's connection to Leaseway's."""
    stack.start()
    dsn = stack.environment()["DATABASE_URL"]
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as admin:
        admin.execute("drop database if exists counts with (force)")
        admin.execute("drop role if exists counts_reader")
        admin.execute("create database counts")
        admin.execute("create role counts_reader login password 'counts'")
        with psycopg.connect(make_conninfo(dsn, dbname="counts"), autocommit=True) as source:
            source.execute(COUNTS.encode())
        address = f"postgresql://counts_reader:counts@127.0.0.1:{admin.info.port}/counts"
        environment["LEASEWAY_SECRET_COUNTS"] = address
        run("connection", "add", "counts", "--secret", "LEASEWAY_SECRET_COUNTS")
        run("up")
        run("source", "register", "counts", "--connection", "counts", "--table", "counts")
        (tmp_path / "counts.yaml").write_text(DEFINITION)
        run("apply", str(tmp_path))
        yield admin
        admin.execute("drop database counts with (force)")
        admin.execute("drop role counts_reader")


@contextmanager
def short_invocations(stack: Stack) -> Iterator[None]:
    """The worker's function has so little time only."""
    functions, worker = stack.client("lambda"), function_name(stack, "Worker")
    whole = functions.get_function_configuration(FunctionName=worker)["Timeout"]

    def set_timeout(seconds: int) -> None:
        functions.update_function_configuration(FunctionName=worker, Timeout=seconds)
        functions.get_waiter("function_updated_v2").wait(FunctionName=worker)

    set_timeout(SECONDS)
    try:
        yield
    finally:
        set_timeout(whole)


def published(run: Run, http: httpx.Client, meanwhile: Callable[[], None] = lambda: None) -> dict[str, tuple[int, str]]:
    """Publish; size and SHA-256 of each file, as the catalogue says and as it is served."""
    job = json.loads(run("publish", "counts", "--json"))["id"]
    meanwhile()
    ended = wait_for(lambda: ended_as(run, job))
    assert ended["status"] == "succeeded", ended
    record = http.get(f"/datasets/counts/versions/{ended['version']}", headers={"Accept": "application/json"}).json()
    assert record["records"] == RECORDS
    for file in record["files"]:
        digest, size = hashlib.sha256(), 0
        with http.stream("GET", file["url"]) as answer:
            for block in answer.iter_bytes():
                digest.update(block)
                size += len(block)
        assert (size, digest.hexdigest()) == (file["bytes"], file["sha256"])
    found = {file["url"].rpartition("/")[2]: (file["bytes"], file["sha256"]) for file in record["files"]}
    assert len(found) == 12
    return found


def ended_as(run: Run, job: str) -> dict[str, Any] | None:
    found: dict[str, Any] = json.loads(run("jobs", "show", job, "--json"))
    return found if found["status"] in ("succeeded", "failed") else None


def wait_for[T](question: Callable[[], T | None]) -> T:
    until = time.monotonic() + PATIENCE
    while (answer := question()) is None:
        assert time.monotonic() < until, "it took too long"
        time.sleep(0.05)
    return answer


def kill_writer(admin: Admin, files: int, known: Collection[int]) -> dict[str, Any] | None:
    """SIGKILL for whoever writes a file when so many are done, by another claim than the known ones; its job."""
    found = admin.execute(WRITING, [files]).fetchone()
    if found is None or found["claim_id"] in known or (process := crash.owner(found)) is None:
        return None
    with suppress(ProcessLookupError):
        os.kill(process[0], signal.SIGSTOP)  # so that it can't hand over between the look and the kill
        still = admin.execute(WRITING, [files]).fetchone()
        os.kill(process[0], signal.SIGKILL if still == found else signal.SIGCONT)
        return found if still == found else None
    return None


@pytest.mark.long
def test_three_million_records_outlast_their_invocations_and_two_kills(
    stack: Stack, run: Run, http: httpx.Client, counts: Admin, ticks: Ticks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEWAY_STACK", SETTINGS["LEASEWAY_STACK"])
    killed: list[dict[str, Any]] = []

    def kill_twice() -> None:
        for files in (0, 1):
            known = {job["claim_id"] for job in killed}
            killed.append(wait_for(partial(kill_writer, counts, files, known)))

    began = time.monotonic()
    undisturbed = published(run, http)
    direct = time.monotonic() - began
    with short_invocations(stack), ticks():
        disturbed = published(run, http, kill_twice)
    outlasting = time.monotonic() - began - direct

    history = counts.execute("select kind from engine.job_event where job_id = %s", [killed[0]["id"]]).fetchall()
    kinds = Counter(event["kind"] for event in history)
    print(f"undisturbed {direct:.0f} s; killed twice, in invocations of {SECONDS} s: {outlasting:.0f} s, {dict(kinds)}")
    assert disturbed == undisturbed
    assert killed[0]["id"] == killed[1]["id"]
    assert kinds["worker_lost"] >= 2  # how often it was handed over besides, the machine's speed says
