"""A PostgreSQL of the benchmarks' own, durable as a real one: each commit is on the disk before it is answered."""

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from chalicelib.db import migrate
from localstack.postgresql import installed_binaries
from tests.conftest import running_postgresql

PUBLIC_URL = "http://localhost:4000"


class Server:
    """The administrator's DSN, databases of their own, and PostgreSQL's own clients."""

    def __init__(self, dsn: str, log: Path):
        self.dsn = dsn
        self.log = log
        self._password = secrets.token_urlsafe(16)
        self._template: str | None = None

    def run(self, dsn: str, *statements: str) -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def version(self) -> str:
        """PostgreSQL's version and what makes a commit durable."""
        with psycopg.connect(self.dsn) as connection:
            names = ("server_version", "fsync", "synchronous_commit", "shared_buffers")
            of = {name: connection.execute(f"show {name}").fetchone()[0] for name in names}
        return (
            f"PostgreSQL {of['server_version']}, fsync {of['fsync']}, synchronous_commit {of['synchronous_commit']},"
            f" shared_buffers {of['shared_buffers']}, over loopback TCP"
        )

    @contextmanager
    def database(self) -> Iterator[str]:
        """The administrator's DSN of a migrated database that lives as long as the block."""
        if self._template is None:
            self._template = "bench_template"
            self.run(self.dsn, f"create database {self._template} template template0")
            migrate(make_conninfo(self.dsn, dbname=self._template), PUBLIC_URL)
            with psycopg.connect(self.dsn, autocommit=True) as admin:
                admin.execute(sql.SQL("alter role leaseway_app password {}").format(sql.Literal(self._password)))
        name = f"bench_{secrets.token_hex(4)}"
        self.run(self.dsn, f"create database {name} template {self._template}")
        try:
            yield make_conninfo(self.dsn, dbname=name)
        finally:
            self.run(self.dsn, f"drop database {name} with (force)")

    def of_the_app(self, dsn: str) -> str:
        """The same database for the functions' own login, with its rights and time-outs."""
        return make_conninfo(dsn, user="leaseway_app", password=self._password)

    def client(self, program: str, dsn: str, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run psql or pgbench to its end."""
        found = conninfo_to_dict(dsn)
        names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD", "dbname": "PGDATABASE"}
        done = subprocess.run(
            [installed_binaries() / program, *(str(argument) for argument in arguments)],
            env={"PATH": os.environ["PATH"], "LC_ALL": "C"} | {names[key]: str(found[key]) for key in names},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done


@contextmanager
def server() -> Iterator[Server]:
    """A server that lives as long as the block."""
    with running_postgresql(durable=True) as own:
        yield Server(own.dsn, own.folder / "postgresql.log")
