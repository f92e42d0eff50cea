"""The three files: Leaseway beside psql, the naive way and DuckDB, a process of its own for each run."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from psycopg.conninfo import conninfo_to_dict

from .one_export import COLUMNS, FORMATS
from .report import CHECKOUT, Size, bar, ratios, spread, table
from .server import Server

Run = dict[str, float]

ONE = ("-m", "tests.bench.one_export")
DUCKDB = Path(__file__).with_name("one_duckdb.py")
BENCH_PYTHON = CHECKOUT / ".leaseway" / "bench-env" / "bin" / "python"

WITH_PSQL = 1.15
LOCAL_MB, S3_MB = 64, 128
SENT = r"LOG:  (?:statement|execute <unnamed>): (.*?)(?=^\d{4}-\d\d-\d\d |\Z)"
"""A statement in the server's log; what follows begins with its time."""

RELATIONS = ("bench.few", "bench.many")

TIMES = 11
"""Ten times the records, and a tenth more for sorting them."""


def run(size: Size, server: Server, folder: Path) -> list[str]:
    with server.database() as dsn:
        records = Path(__file__).with_name("records.sql").read_text()
        for name, number in (("few", size.records), ("many", size.many_records)):
            server.run(
                dsn,
                "create schema if not exists bench",
                records.format(name=name, records=number),
                f"vacuum (analyze) bench.{name}",
            )
        server.run(dsn, "checkpoint")
        out = folder / "files"

        def files(name: str) -> Run:
            return one(out, *ONE, "files", name, out, BENCH_DSN=dsn)

        with s3_sink() as endpoint:
            sent = statements(server, dsn, lambda: files("bench.few"), out)
            script = {name: sent.replace("bench.few", name) for name in RELATIONS}
            methods: dict[str, Callable[[str], Run]] = {
                "psql": lambda name: psql(server, dsn, script[name], out),
                "files": files,
                "three": lambda name: one(out, *ONE, "three", name, out, BENCH_DSN=dsn),
                "s3": lambda name: one(out, *ONE, "s3", name, "bucket", BENCH_DSN=dsn, AWS_ENDPOINT_URL=endpoint),
                "duckdb": lambda name: one(out, DUCKDB, name, out, python=BENCH_PYTHON, BENCH_DSN=dsn),
                "naive": lambda name: one(out, *ONE, "naive", name, out, BENCH_DSN=dsn),
            }
            methods["psql"]("bench.few")  # for the caches
            some: dict[str, list[Run]] = {name: [] for name in methods}
            many: dict[str, list[Run]] = {name: [] for name in ("psql", "files", "s3")}
            for name, runs in [(name, runs) for _ in range(size.runs) for name, runs in some.items()]:
                runs.append(methods[name]("bench.few"))
            for name, runs in [(name, runs) for _ in range(size.runs) for name, runs in many.items()]:
                runs.append(methods[name]("bench.many"))
    for runs in (some, many):
        pairs = zip(runs["psql"][0]["sizes"], runs["files"][0]["sizes"], strict=True)
        assert all(theirs > 0.9 * ours for theirs, ours in pairs), "psql has copied other records"
    return tables(size, some, many)


def tables(size: Size, some: dict[str, list[Run]], many: dict[str, list[Run]]) -> list[str]:
    def of(runs: list[Run], figure: str) -> list[float]:
        return [run[figure] for run in runs]

    psql_seconds = of(some["psql"], "seconds")

    def row(label: str, name: str, runs: list[Run], psql: list[float]) -> tuple[str, ...]:
        seconds = of(runs, "seconds")
        peak = f"{max(of(runs, 'peak')):.0f}" if "peak" in runs[0] else ""
        compared = spread(ratios(seconds, psql)) if name != "psql" else "1"
        return label, str(len(runs)), spread(seconds), spread(of(runs, "cpu")), peak, compared

    labels = {
        "psql": "psql's `\\copy`, the same three statements, one connection",
        "files": "**Leaseway, to files, one connection**",
        "three": "Leaseway, to files, three connections (each its own snapshot)",
        "s3": "**Leaseway, to S3 multipart, one connection**",
        "duckdb": "DuckDB, three `copy … to`",
        "naive": "naive: `fetchall`, `csv`, `json`, `ElementTree`",
    }
    head = ("", "runs", "wall s", "CPU s of the client", "peak MB, worst run", "wall, × psql")
    ratio = median(ratios(of(some["files"], "seconds"), psql_seconds))
    many_psql = of(many["psql"], "seconds")
    peaks = {(name, n): max(of(runs[name], "peak")) for n, runs in enumerate((some, many)) for name in ("files", "s3")}
    longer = {
        name: median(of(many[name], "seconds")) / median(of(some[name], "seconds")) for name in ("psql", "files", "s3")
    }
    bars = [
        ("bar", "at most", "measured", ""),
        bar("to files on one connection, × psql's `\\copy`", ratio, WITH_PSQL, " ×"),
        bar("to files, peak memory", peaks["files", 0], LOCAL_MB, " MB", 0),
        bar("to S3, peak memory", peaks["s3", 0], S3_MB, " MB", 0),
        bar("ten times the records to files, peak memory", peaks["files", 1], LOCAL_MB, " MB", 0),
        bar("ten times the records to S3, peak memory", peaks["s3", 1], S3_MB, " MB", 0),
        bar("ten times the records to files, times the time", longer["files"], TIMES, " ×", 1),
        bar("ten times the records to S3, times the time", longer["s3"], TIMES, " ×", 1),
    ]
    return [
        *table(*bars),
        "",
        f"Ten times the records take psql {longer['psql']:.1f} times the time.",
        "",
        f"{size.records:,} records × {len(COLUMNS)} columns as CSV, JSON and XML"
        f" ({', '.join(f'{megabytes:.0f} MB' for megabytes in some['files'][0]['sizes'])}):",
        "",
        *table(head, *(row(label, name, some[name], psql_seconds) for name, label in labels.items())),
        "",
        f"{size.many_records:,} records:",
        "",
        *table(head, *(row(labels[name], name, runs, many_psql) for name, runs in many.items())),
    ]


def one(out: Path, *command: object, python: Path | None = None, **environment: str) -> Run:
    """A run in a process of its own, into an empty folder."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    keys = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    done = subprocess.run(
        [python or sys.executable, *(str(part) for part in command)],
        cwd=CHECKOUT,
        env=os.environ | keys | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout) | {"sizes": sizes(out)}


def sizes(out: Path) -> list[float]:
    """The files' megabytes, if there are any."""
    return [(out / name).stat().st_size / 1e6 for name in FORMATS if (out / name).exists()]


def statements(server: Server, dsn: str, export: Callable[[], Run], out: Path) -> str:
    """What Leaseway's export really sends, as psql's script: its transaction, and each of its COPYs to a file."""
    name = conninfo_to_dict(dsn)["dbname"]
    server.run(server.dsn, f"alter database {name} set log_statement = 'all'")
    before = server.log.stat().st_size
    export()
    server.run(server.dsn, f"alter database {name} reset log_statement")
    logged = server.log.read_bytes()[before:].decode()
    sent = [re.sub(r"\s+", " ", text) for text in re.findall(SENT, logged, re.M | re.S)]
    begin = next(text for text in sent if "begin isolation level" in text)
    copies = [text for text in sent if re.match(r"copy .* to stdout \(", text)]
    assert len(copies) == len(FORMATS), "an export isn't three COPYs any more"
    files = [re.sub(r"(.*) to stdout", rf"\\\1 to '{out / n}'", text) for n, text in zip(FORMATS, copies, strict=True)]
    return "\n".join([f"{begin.rstrip('; ')};", *files, "commit;", ""])


def psql(server: Server, dsn: str, script: str, out: Path) -> Run:
    """The same statements under the same settings. psql's own start and log-in, about 10 ms, are in its time."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    file = out.with_name("script.sql")
    file.write_text(script)
    began, used = time.perf_counter(), sum(os.times()[2:4])
    server.client("psql", dsn, "-qX", "-v", "ON_ERROR_STOP=1", "-f", file)
    return {"seconds": time.perf_counter() - began, "cpu": sum(os.times()[2:4]) - used, "sizes": sizes(out)}


@contextmanager
def s3_sink() -> Iterator[str]:
    """The address of an object storage that checks and forgets."""
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.s3_sink"], cwd=CHECKOUT, stdout=subprocess.PIPE)
    assert process.stdout
    try:
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
