"""One world for the whole proof, and the table at its end."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr

from chalicelib import telemetry
from chalicelib.settings import Settings
from tests.conftest import PUBLIC_URL, Clock, _database
from tests.proof import interleaving
from tests.proof import world as worlds
from tests.proof.watch import Watch
from tests.proof.world import World

LONG = os.environ.get("PROVE") == "long"

caught_by: list[str] = []
"""Each broken twin, and the check that caught it."""

table: dict[str, dict[str, object]] = {}
seeds: dict[str, set[int]] = {}


@pytest.fixture(scope="session")
def world(admin_dsn: str, template: str) -> Iterator[World]:
    """An installation that lives as long as the proof; each run begins with `reset`.

    Its database is its own: a test that empties the session's ends every connection there.
    """
    with _database(admin_dsn, template) as name:
        yield from _world(make_conninfo(admin_dsn, dbname=name))


def _world(admin: str) -> Iterator[World]:
    clock = Clock(admin)
    watch = Watch(admin, worlds.CAP)
    dsn = make_conninfo(admin, options="-c role=leaseway_app -c lock_timeout=10s")
    settings = Settings(
        database_url=SecretStr(dsn), public_url=PUBLIC_URL, hash_key=SecretStr("proof"), catch_up_cap=worlds.CAP
    )
    made = World(dsn, clock, settings, watch)
    worlds.watching.append(watch)
    with pytest.MonkeyPatch.context() as quiet:
        quiet.setattr(telemetry, "log", lambda event, **fields: None)  # a hundred thousand lines
        yield made
    worlds.watching.clear()
    interleaving.close()
    made.close()
    watch.close()
    clock.close()


@pytest.fixture
def figures(request: pytest.FixtureRequest) -> dict[str, int]:
    """What this test counts; summed up by check, in the table at the end, beside the seeds: its own, or its file's."""
    counts: dict[str, int] = {}
    drawn = request.node.callspec.params if hasattr(request.node, "callspec") else {}
    seed = drawn.get("seed", getattr(request.module, "SEED", None))
    request.node.user_properties.extend([("figures", counts), ("seed", seed)])
    return counts


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A worker's properties come with its report, so that the table is whole."""
    told = dict(report.user_properties)
    if report.when != "call" or "figures" not in told:
        return
    if line := told.get("caught by"):
        caught_by.append(line)
    check = Path(report.fspath).stem.removeprefix("test_")
    row = table.setdefault(check, {"seconds": 0.0, "failed": 0})
    if told["seed"] is not None:
        seeds.setdefault(check, set()).add(told["seed"])
    for what, number in {**told["figures"], "seconds": report.duration, "failed": int(report.failed)}.items():
        row[what] = row.get(what, 0) + number


def pytest_terminal_summary(terminalreporter) -> None:
    if not table:
        return
    terminalreporter.section("what was tried", "=")
    for line in sorted(caught_by):
        terminalreporter.write_line(line.rstrip())
    for check, row in sorted(table.items()):
        counts = ", ".join(f"{number:,} {what}" for what, number in row.items() if what not in ("seconds", "failed"))
        if drawn := ", ".join(str(seed) for seed in sorted(seeds.get(check, ()))):
            counts = f"{counts}; seed {drawn}".removeprefix("; ")
        line = f"{check:<14} {counts:<70} {row['failed']} failed  {row['seconds']:6.1f} s"
        terminalreporter.write_line(line)
