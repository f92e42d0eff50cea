"""Tokens and the schema, as an operator sees them beside the database."""

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from chalicelib import settings
from chalicelib.db import set_time_outs
from chalicelib.security import Role, Unauthorized, authenticate
from tests.conftest import PUBLIC_URL


@pytest.fixture
def key(monkeypatch):
    monkeypatch.setenv("LEASEWAY_HASH_KEY", "a key that only the tests know, 32 characters")


def secret_of(said):
    (secret,) = [line for line in said.splitlines() if line.startswith("lw_")]
    return secret


def test_a_token_is_shown_once_listed_without_its_secret_and_revoked(key, run, database):
    secret = secret_of(
        run("token", "create", "roads-office", "--role", "reader", "--datasets", "roads-*", "--expires", 7)
    )
    other = secret_of(run("token", "create", "roads-office"))

    principal = authenticate(database, f"Bearer {secret}")
    assert (principal.name, principal.role, principal.datasets) == ("roads-office", Role.READER, "roads-*")
    listed = run("token", "list", "--json")
    assert {token["principal"] for token in listed} == {"roads-office"}
    (mine,) = [token for token in listed if token["role"] == "reader"]
    for text in (str(listed), run("token", "list")):
        assert secret not in text
        assert other not in text

    run("token", "revoke", mine["id"])

    with pytest.raises(Unauthorized):
        authenticate(database, f"Bearer {secret}")
    assert authenticate(database, f"Bearer {other}")
    assert [token["stands"] for token in run("token", "list", "--json") if token["id"] == mine["id"]] == [False]
    assert "There is no token" in run("token", "revoke", "019ad0c2-0000-7000-8000-000000000000", code=1)


def test_a_second_migration_changes_nothing_and_another_address_is_refused(run, admin_database_dsn, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", admin_database_dsn)
    monkeypatch.setenv("PUBLIC_URL", PUBLIC_URL)
    settings.settings.cache_clear()
    assert run("migrate") == "The schema is up to date.\n"
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        for verbosity, warned in (("default", True), ("terse", False)):
            name = sql.Identifier(admin.info.dbname)
            admin.execute(sql.SQL("alter database {} set log_error_verbosity = {}").format(name, verbosity))
            assert ("log_error_verbosity = terse" in run("migrate")) is warned

    monkeypatch.setenv("PUBLIC_URL", "https://elsewhere.example.org")
    settings.settings.cache_clear()
    assert PUBLIC_URL in run("migrate", code=1)


TIME_OUTS = """
select setconfig from pg_db_role_setting
 where setrole = 'leaseway_app'::regrole
   and setdatabase = (select oid from pg_database where datname = current_database())
"""


def test_the_functions_role_has_the_time_outs_of_the_settings(run, admin_database_dsn, monkeypatch):
    monkeypatch.setenv("DATABASE_URL", admin_database_dsn)
    monkeypatch.setenv("PUBLIC_URL", PUBLIC_URL)
    for name, value, idle in ((None, "", "30s"), ("LEASEWAY_IDLE_IN_TRANSACTION", "20.5", "20.5s")):
        if name:
            monkeypatch.setenv(name, value)
        settings.settings.cache_clear()
        run("migrate")
        with psycopg.connect(admin_database_dsn) as admin:
            assert admin.execute(TIME_OUTS).fetchone() == (
                ["statement_timeout=25s", "lock_timeout=25s", f"idle_in_transaction_session_timeout={idle}"],
            )

    plain = make_conninfo(admin_database_dsn, options="-c role=pg_monitor")  # may change no role
    assert set_time_outs(plain, settings.settings()) == []  # they stand already
    monkeypatch.setenv("LEASEWAY_LOCK_TIMEOUT", "7")
    settings.settings.cache_clear()
    [told] = set_time_outs(plain, settings.settings())
    assert told.endswith(" set lock_timeout = '7s';")
    monkeypatch.setattr("chalicelib.db.set_time_outs", lambda *_: [told])
    assert told in run("migrate")
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute(told)  # as it is told
        assert "lock_timeout=7s" in admin.execute(TIME_OUTS).fetchone()[0]


@pytest.mark.parametrize(
    ("secret", "added"),
    [
        ("postgresql://reader:CANARY-password@127.0.0.1:9/CANARY", 0),
        ("CANARY no=dsn", 1),
        ("host=CANARY.invalid", 0),
    ],
)
def test_T28_no_command_says_what_a_login_or_its_server_said(run, monkeypatch, secret, added):
    monkeypatch.delenv("LEASEWAY_SECRET_SRC", raising=False)
    run("connection", "add", "src", "--secret", "LEASEWAY_SECRET_SRC")
    run("source", "register", "trees", "--connection", "src", "--table", "src.trees")
    monkeypatch.setenv("LEASEWAY_SECRET_SRC", secret)

    said = run("connection", "check", "src", code=1) + run("connection", "list") + run("source", "list")
    said += run("connection", "add", "another", "--secret", "LEASEWAY_SECRET_SRC", code=added)

    assert "CANARY" not in said
    assert "Traceback" not in said
