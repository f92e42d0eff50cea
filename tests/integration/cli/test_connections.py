"""`leaseway connection`: what an operator types, and what it says."""

import psycopg
import pytest

from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from tests.integration.datasets.test_registry import FLIGHTS


def test_a_connection_is_added_changed_and_listed(run):
    run("connection", "add", "office", "--secret", "LEASEWAY_SECRET_OFFICE")
    assert run("connection", "list", "--json")[0]["max_jobs"] == 1

    run("connection", "add", "office", "--secret", "LEASEWAY_SECRET_O", "--max-jobs", 3, "--statement-timeout", 600)
    (listed,) = run("connection", "list", "--json")
    assert (listed["secret"], listed["max_jobs"], listed["statement_timeout"]) == ("LEASEWAY_SECRET_O", 3, 600)

    run("connection", "add", "office", "--secret", "LEASEWAY_SECRET_O")  # as it was before there were limits
    (listed,) = run("connection", "list", "--json")
    assert (listed["max_jobs"], listed["statement_timeout"]) == (3, 600)
    assert "600 s" in run("connection", "list")

    run("connection", "add", "office", "--secret", "LEASEWAY_SECRET_O", "--statement-timeout", 0)
    assert "the login's" in run("connection", "list")


@pytest.mark.parametrize("limit", [("--max-jobs", "0"), ("--max-jobs", "101"), ("--statement-timeout", "-1")])
def test_a_limit_out_of_bounds_is_wrong_usage(run, limit):
    run("connection", "add", "office", "--secret", "LEASEWAY_SECRET_OFFICE", *limit, code=2)


def test_a_secret_that_is_no_address_is_refused_before_anything_is_kept(run, monkeypatch):
    monkeypatch.setenv("LEASEWAY_SECRET_X", "canary not a dsn")

    told = run("connection", "add", "x", "--secret", "LEASEWAY_SECRET_X", code=1)

    assert "LEASEWAY_SECRET_X is set here, but can't be used. The secret isn't a connection string" in told
    assert "canary" not in told
    assert run("connection", "list", "--json") == []


def test_a_check_without_a_finding_ends_with_0(run, reader):
    run("connection", "add", "src", "--secret", "LEASEWAY_SECRET_SRC")
    run("source", "register", "trees", "--connection", "src", "--table", "src.trees")

    said = run("connection", "check", "src")

    for words in ("primary", "PostgreSQL 18", "trees", "reads 2 columns", "Nothing to mend."):
        assert words in said
    assert "only-reads" not in said
    assert run("connection", "check", "src", "--json")["findings"] == []


def test_a_finding_is_exit_code_1(run, reader, admin_database_dsn):
    run("connection", "add", "src", "--secret", "LEASEWAY_SECRET_SRC")
    run("source", "register", "trees", "--connection", "src", "--table", "src.trees")
    run("source", "register", "gone", "--connection", "src", "--table", "src.gone")
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute(f"grant insert on src.trees to {reader}")

    said = run("connection", "check", "src", "--json", code=1)

    assert said["sources"] == {"gone": "source_changed", "trees": "reads 2 columns"}
    assert [finding.split(".")[0] for finding in said["findings"]] == [
        "The login could write: INSERT on src",
        "Source gone: There is no relation of that name",
    ]
    assert "! The login could write: INSERT on src.trees" in run("connection", "check", "src", code=1)


def test_what_a_dataset_publishes_is_what_must_be_read(run, reader, database):
    run("connection", "add", "src", "--secret", "LEASEWAY_SECRET_SRC")
    run("source", "register", "trees", "--connection", "src", "--table", "src.trees")
    columns = [{"name": "id", "type": "integer"}, {"name": "height", "type": "decimal"}]
    registry.put_definition(database, "trees", Definition.parse(FLIGHTS | {"source": "trees", "columns": columns}))

    (finding,) = run("connection", "check", "src", "--json", code=1)["findings"]
    assert "column height" in finding


def test_a_secret_that_is_not_here_and_a_connection_that_is_not_there(run):
    run("connection", "add", "src", "--secret", "LEASEWAY_SECRET_NOT_HERE")

    assert "LEASEWAY_SECRET_NOT_HERE isn't set here" in run("connection", "check", "src", code=1)
    assert "There is no connection other" in run("connection", "check", "other", code=1)


def test_a_login_that_sees_leaseways_own_schema_is_a_finding(run, dsn, monkeypatch):
    run("connection", "add", "own", "--secret", "LEASEWAY_SECRET_OWN")
    monkeypatch.setenv("LEASEWAY_SECRET_OWN", dsn)

    assert "! The login sees Leaseway's own schema" in run("connection", "check", "own", code=1)
