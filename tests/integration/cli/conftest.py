"""The command line on a real database, as an operator runs it beside it."""

import json

import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

from chalicelib import settings
from chalicelib.cli import leaseway


@pytest.fixture
def run(dsn, clock, monkeypatch):
    """Run a command on this test's database; with --json, its answer is read."""
    monkeypatch.setenv("DATABASE_URL", dsn)
    settings.settings.cache_clear()

    def invoke(*arguments, code=0):
        result = CliRunner().invoke(leaseway, [str(argument) for argument in arguments])
        assert result.exit_code == code, result.output
        return json.loads(result.stdout) if "--json" in arguments else result.output

    yield invoke
    settings.settings.cache_clear()


@pytest.fixture
def reader(admin_database_dsn, monkeypatch):
    """A login that may only read src.trees; its address is in LEASEWAY_SECRET_SRC."""
    import psycopg

    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        name = f"{admin.info.dbname}_reader"
        admin.execute("drop schema if exists src cascade")
        admin.execute("create schema src")
        admin.execute("create table src.trees (id int, name text)")
        admin.execute(f"create role {name} login password 'only-reads'")
        admin.execute(f"grant usage on schema src to {name}")
        admin.execute(f"grant select on src.trees to {name}")
        monkeypatch.setenv("LEASEWAY_SECRET_SRC", make_conninfo(admin_database_dsn, user=name, password="only-reads"))
        yield name
        admin.execute("drop schema src cascade")
        admin.execute(f"drop owned by {name}")
        admin.execute(f"drop role {name}")
