"""The engine's own tests once more, through PgBouncer in transaction mode."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

ROOT = Path(__file__).resolve().parents[2]
# Half the time of all of them, and nothing that a session could keep.
LEFT_OUT = ["--deselect", "tests/integration/engine/test_wake_ups.py::test_ten_thousand_queued_jobs"]


@pytest.fixture
def connection(pooler):
    with psycopg.connect(make_conninfo(pooler, dbname="postgres"), autocommit=True, prepare_threshold=None) as opened:
        yield opened


def test_T25_what_is_set_in_a_session_is_gone_in_the_next_transaction(connection):
    """So that the tests below would notice."""
    connection.execute("set lock_timeout = '7s'")
    seen: dict[int, str] = {}
    while len(seen) < 3:  # the pooler opens its sessions one after the other
        session, value = connection.execute("select pg_backend_pid(), current_setting('lock_timeout')").fetchone()
        seen[session] = value
    assert sorted(seen.values()) == ["10s", "10s", "7s"]
    own = next(session for session, value in seen.items() if value == "7s")
    while connection.execute("select set_config('lock_timeout', '10s', false), pg_backend_pid()").fetchone()[1] != own:
        pass  # nobody after this test is to come into that session as it is


def test_T25_who_comes_through_the_pooler_has_the_rights_and_timeouts_of_the_functions(connection):
    settings = [connection.execute(f"show {name}").fetchone()[0] for name in ("role", "lock_timeout")]
    assert settings == ["leaseway_app", "10s"]


def test_T25_the_engine_s_tests_pass_through_a_pooler(admin_dsn, pooler, figures):
    """In a process of its own, for the fixtures of this one aren't pooled; `pooler` says here why there is none."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "tests/integration/engine", "-x", "-p", "no:cacheprovider", *LEFT_OUT],
        cwd=ROOT,
        env=os.environ | {"POOLER": "1", "DATABASE_URL": admin_dsn},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "skipped" not in done.stdout, done.stdout[-1000:]
    figures["tests"] = int(re.search(r"(\d+) passed", done.stdout).group(1))
