"""The benchmarks end and write their tables; what they say is looked at by people, never by a test."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.long
def test_a_small_run_of_the_benchmarks_fills_every_table(tmp_path: Path) -> None:
    report = tmp_path / "benchmarks.md"

    ran = subprocess.run(
        ["make", "--no-print-directory", "bench"],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "ONLY"}
        | {"BENCH": "short", "REPORT": str(report)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    for part in ("exports", "engine", "cold", "scale"):
        written = report.read_text().partition(f"<!-- {part}: ")[2].partition(f"<!-- /{part} -->")[0]
        assert "BENCH=short" in written
        assert written.count("\n|") >= 3
        assert part != "engine" or "idle snapshot" in written
