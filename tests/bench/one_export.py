"""One export in a process of its own: `python -m tests.bench.one_export METHOD RELATION FOLDER|BUCKET`.

BENCH_DSN is the source. Prints its seconds, its CPU seconds and its peak memory. The interpreter's start and the
imports aren't in the seconds (a worker has them behind it), but they are in the memory.
"""

import csv
import json
import os
import re
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import psycopg
from psycopg.rows import dict_row

from chalicelib.exports import CSV, JSON, XML, Column, FileSpec, LocalFile, Relation, Store, export
from chalicelib.exports.storage import client

SPECS = [FileSpec(CSV), FileSpec(JSON), FileSpec(XML)]
FORMATS = [spec.format.name for spec in SPECS]
COLUMNS = [
    Column(name, type_, name)
    for name, type_ in {
        "id": "integer",
        "reference": "uuid",
        "name": "text",
        "street": "text",
        "note": "text",
        "status": "text",
        "code": "text",
        "amount": "decimal",
        "rate": "decimal",
        "share": "double",
        "temperature": "double",
        "visitors": "integer",
        "district": "integer",
        "active": "boolean",
        "opened": "date",
        "closes": "time",
        "measured": "timestamp",
        "updated": "timestamptz",
        "properties": "json",
        "picture": "binary",
    }.items()
]


def _silent(**_: int) -> None:
    """Nobody holds a lease here."""


def files(dsn: str, relation: str, folder: str) -> None:
    """As a publication does it, to files of this machine."""
    _to_files(dsn, relation, folder, SPECS)


def three(dsn: str, relation: str, folder: str) -> None:
    """Each file over a connection of its own, so each of a snapshot of its own: no publication does this."""
    with ThreadPoolExecutor(len(SPECS)) as pool:
        list(pool.map(lambda spec: _to_files(dsn, relation, folder, [spec]), SPECS))


def _to_files(dsn: str, relation: str, folder: str, specs: Sequence[FileSpec]) -> None:
    export(
        Relation(dsn, relation, None, COLUMNS), specs, lambda suffix, _: LocalFile(Path(folder, suffix)), beat=_silent
    )


def s3(dsn: str, relation: str, bucket: str) -> None:
    """As a publication does it, by multipart upload."""
    store = Store(bucket, client)
    export(Relation(dsn, relation, None, COLUMNS), SPECS, store.open_upload, beat=_silent)


def naive(dsn: str, relation: str, folder: str) -> None:
    """As it is written first: fetch everything, let the standard library format it."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        rows = connection.execute(f"select * from {relation} order by id").fetchall()
    with Path(folder, "csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [column.name for column in COLUMNS])
        writer.writeheader()
        writer.writerows(rows)
    with Path(folder, "json").open("w") as file:
        json.dump(rows, file, default=_text, ensure_ascii=False)
    records = ElementTree.Element("records")
    for row in rows:
        record = ElementTree.SubElement(records, "record")
        for name, value in row.items():
            ElementTree.SubElement(record, name).text = "" if value is None else _text(value)
    ElementTree.ElementTree(records).write(Path(folder, "xml"), encoding="utf-8", xml_declaration=True)


def _text(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)


def peak() -> float:
    """Peak memory in MB. Not ru_maxrss: that begins with the memory of whoever started this process."""
    found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) / 1024


if __name__ == "__main__":
    method, relation, where = sys.argv[1:]
    dsn = os.environ["BENCH_DSN"]
    if method == "s3":
        client()  # boto3's import is a cold start's, which is measured elsewhere
    began, used = time.perf_counter(), sum(os.times()[:2])
    {"files": files, "three": three, "s3": s3, "naive": naive}[method](dsn, relation, where)
    seconds = time.perf_counter() - began
    print(json.dumps({"seconds": seconds, "cpu": sum(os.times()[:2]) - used, "peak": peak()}))
