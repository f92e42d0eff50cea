"""PostgreSQL's life: made, found, killed, stopped; and where root's PostgreSQL goes when it can't go home."""

import os
import secrets
import shutil
import signal
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from localstack.postgresql import PostgreSQL, PostgreSQLError

ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to run PostgreSQL as somebody else")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a space in its name that PostgreSQL's account can reach; what runs in it ends."""
    made = Path("/var/tmp", f"leaseway test {secrets.token_hex(4)}")
    made.mkdir(mode=0o755)
    yield made / "stack"
    PostgreSQL(made / "stack").stop()
    shutil.rmtree(made)


def server(folder: Path) -> PostgreSQL:
    return PostgreSQL(folder, durable=False)


def kill(running: PostgreSQL) -> None:
    pid = running.pid()
    assert pid
    process = psutil.Process(pid)
    process.kill()
    process.wait(10)


def test_it_is_made_once_and_found_by_the_next_command(folder: Path) -> None:
    dsn = server(folder).start()
    first = server(folder).pid()

    assert server(folder).start() == dsn
    assert server(folder).pid() == first
    with psycopg.connect(dsn) as connection:
        assert connection.info.server_version >= 180000
        assert connection.execute("show listen_addresses").fetchone() == ("127.0.0.1",)
        assert connection.execute("select upper('é'), current_setting('timezone')").fetchone() == ("É", "UTC")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(dsn.replace(server(folder).password, "guessed"))


def test_what_was_committed_survives_a_kill_and_a_stop_at_the_same_address(folder: Path) -> None:
    dsn = server(folder).start()
    with psycopg.connect(dsn) as connection:
        connection.execute("create table kept as select generate_series(1, 1000) as number")

    kill(server(folder))
    assert server(folder).start() == dsn
    server(folder).stop()
    assert server(folder).pid() is None
    assert server(folder).start() == dsn
    with psycopg.connect(dsn) as connection:
        assert connection.execute("select count(*) from kept").fetchone() == (1000,)


def test_a_pid_that_another_program_has_by_now_is_not_taken_for_the_server(folder: Path) -> None:
    server(folder).start()
    kill(server(folder))
    file = server(folder).data / "postmaster.pid"
    lines = file.read_text().splitlines()
    file.write_text("\n".join([str(os.getpid()), *lines[1:]]) + "\n")  # this very test

    assert server(folder).pid() is None
    server(folder).stop()  # and lets us live
    server(folder).start()


def test_a_killed_initdb_leaves_nothing_that_counts(folder: Path) -> None:
    half = folder / "data.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")

    server(folder).start()
    assert not half.exists()


def test_a_port_of_somebody_else_is_said(folder: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = PostgreSQL(folder, port=other.getsockname()[1])
        with pytest.raises(PostgreSQLError, match=r"Port \d+ of PostgreSQL is taken"):
            taken.start()


def test_a_fast_stop_ends_open_connections(folder: Path) -> None:
    connection = psycopg.connect(server(folder).start())
    connection.execute("select 1")  # a transaction is open
    server(folder).stop()

    assert server(folder).pid() is None
    with pytest.raises(psycopg.OperationalError):
        connection.execute("select 1")
    connection.close()


@ROOT_ONLY
def test_below_a_home_that_its_account_cant_enter_it_goes_elsewhere_and_no_permission_is_changed(folder: Path) -> None:
    home = folder.parent / "home"
    home.mkdir(mode=0o700)
    inside = home / "stack"
    try:
        dsn = server(inside).start()
        elsewhere = server(inside).data.parent

        assert stat.S_IMODE(home.stat().st_mode) == 0o700
        assert (inside / "elsewhere").read_text() == str(elsewhere)
        assert elsewhere.parent == Path("/var/tmp")
        assert psutil.Process(server(inside).pid() or 0).uids().real != 0

        os.kill(server(inside).pid() or 0, signal.SIGKILL)
        assert server(inside).start() == dsn
        assert server(inside).data.parent == elsewhere
    finally:
        server(inside).stop()
        shutil.rmtree(server(inside).data.parent)


@ROOT_ONLY
def test_data_that_are_gone_are_not_silently_begun_anew(folder: Path) -> None:
    home = folder.parent / "home"
    home.mkdir(mode=0o700)
    server(home / "stack").start()
    server(home / "stack").stop()
    shutil.rmtree(server(home / "stack").data.parent)

    with pytest.raises(PostgreSQLError, match="is gone"):
        server(home / "stack").start()
