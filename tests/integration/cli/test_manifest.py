"""`leaseway manifest`, beside a real database: told with line and column, looked at from here, kept for ever."""

import json

import psycopg
import pytest

from chalicelib.cli.remote import Refused
from chalicelib.cli.restored import seen_by_targets
from chalicelib.datasets import registry
from chalicelib.pipelines.refresh import registry as refreshes
from chalicelib.pipelines.refresh.looking import highest_fence

FILE = """\
contracts:
  - name: trees
    source: trees
    target: {connection: mart, table: mart.trees}
    key: [id]
    columns:
      - {name: id, type: integer}
      - {name: species, type: text}
"""


@pytest.fixture
def mart(admin_database_dsn, dsn, database, monkeypatch):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("drop schema if exists mart cascade; drop schema if exists leaseway cascade; create schema mart")
        admin.execute("create table mart.trees (id int primary key, species text)")
        admin.execute("create table mart.source (id int, species text)")
        admin.execute("grant usage on schema mart to leaseway_app; grant select on mart.source to leaseway_app")
        admin.execute("grant select, insert, update, delete on mart.trees to leaseway_app")
        admin.execute("create schema leaseway authorization leaseway_app")
        for name in ("SRC", "MART"):
            monkeypatch.setenv(f"LEASEWAY_SECRET_{name}", dsn)
            registry.add_connection(database, name.lower(), f"LEASEWAY_SECRET_{name}")
        registry.register_source(database, "trees", "src", "mart.source", None)
        yield admin


@pytest.fixture
def file(tmp_path):
    made = tmp_path / "refresh.yaml"
    made.write_text(FILE)
    return made


def test_the_same_again_is_the_same_version_and_going_back_is_a_new_one(run, mart, database, file):
    assert "at version 1: 1 contract" in run("manifest", "register", file)
    assert "at version 1, as it was" in run("manifest", "register", file)
    file.write_text(FILE + "    chunk_rows: 5\n")
    assert "at version 2" in run("manifest", "register", file)
    file.write_text(FILE)
    assert "at version 3" in run("manifest", "register", file)

    listed = run("manifest", "list", "--json")
    assert [each["version"] for each in listed] == [3, 2, 1]
    assert listed[0]["sha256"] == listed[2]["sha256"] != listed[1]["sha256"]
    assert json.loads(run("manifest", "show", 2))["contracts"][0]["chunk_rows"] == 5
    assert "no such version" in run("manifest", "show", 9, code=1)
    assert listed[0]["sha256"] in run("manifest", "list")


def test_what_is_wrong_in_it_and_what_isnt_known_is_told_at_once(run, mart, database, file):
    second = FILE.removeprefix("contracts:\n").replace("source: trees", "source: roads").replace("[id]", "[nr]")
    file.write_text(FILE + second)

    told = run("manifest", "register", file, code=1)

    for part in (
        ":9:5: contracts[1].name is that of contracts[0]",
        ":10:5: contracts[1].source isn't registered",
        ":11:5: contracts[1].target is that of contracts[0]",
        ":12:5: contracts[1].key name nr",
    ):
        assert part in told


def test_a_sources_revision_is_pinned_with_the_manifest(run, mart, database, file):
    run("manifest", "register", file)
    registry.register_source(database, "trees", "src", None, "select 1 as id, 'x' as species")
    run("manifest", "register", file)

    pinned = [refreshes.manifest(database, n)["body"]["contracts"][0]["source_revision"] for n in (1, 2)]
    assert pinned == [1, 2]


@pytest.mark.parametrize(
    ("old", "new", "where", "said"),
    [
        ("key: [id]", "key: [nr]", ":5:", "which isn't among the columns"),
        ("source: trees", "source: roads", ":3:", "isn't registered"),
        ("source: trees", "source: trees\n    source_revision: 7", ":3:", "isn't registered in revision 7"),
        ("connection: mart", "connection: away", ":4:", "isn't known"),
        ("connection: mart", "connection: src", ":4:", "is one that sources are read by"),
        ("contracts:", "contract:", ":1:", "did you mean contracts?"),
    ],
)
def test_what_is_wrong_is_told_with_its_line_and_nothing_is_registered(
    run, mart, database, file, old, new, where, said
):
    file.write_text(FILE.replace(old, new, 1))
    refused = run("manifest", "register", file, code=1)
    assert f"{file}{where}" in refused
    assert said in refused
    assert refreshes.manifests(database) == []


def test_a_file_is_no_source_of_a_refresh(run, mart, database, file):
    described = {"key": "k", "bytes": 1, "sha256": "x", "records": 1, "dialect": {}, "columns": []}
    registry.register_file(database, "trees", described)
    assert "is no table or query of a connection" in run("manifest", "register", file, code=1)


def test_without_any_the_list_says_how_to_register_one(run, database):
    assert "leaseway manifest register FILE" in run("manifest", "list")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("select 1", "Nothing to mend."),
        ("revoke insert, delete on mart.trees from leaseway_app", "lacks INSERT, DELETE on mart.trees"),
        ("drop schema leaseway", "There is no schema leaseway there"),
        ("alter schema leaseway owner to current_user", "may not CREATE in the schema leaseway"),
        ("alter table mart.trees drop constraint trees_pkey", "no unique index on the contract's key"),
        ("alter table mart.trees alter id type text", "mart.trees.id has a type"),
        ("drop table mart.trees", "target_changed"),
        (
            "alter table mart.trees rename to plants; create view mart.trees as select * from mart.plants;"
            " grant all on mart.trees to leaseway_app",
            "The target is a view",
        ),
        ("revoke select on mart.source from leaseway_app", "source_denied: sqlstate 42501, relation trees"),
    ],
)
def test_everything_that_it_names_is_looked_at_from_here(run, mart, file, change, said):
    mart.execute(change)
    assert said in run("manifest", "check", file, code=0 if said.startswith("Nothing") else 1)


def test_a_target_that_is_its_own_source_by_another_connection_is_a_finding(run, mart, database, file):
    registry.register_source(database, "trees", "src", "mart.trees", None)
    assert "target_is_source: relation mart.trees" in run("manifest", "check", file, code=1)


def test_after_a_restore_the_fences_of_the_targets_are_known(run, mart, database, file, monkeypatch):
    assert highest_fence(database) == 0
    run("manifest", "register", file)
    assert highest_fence(database) == 0
    mart.execute(f"set role leaseway_app; {refreshes.SQL.make_fence_table}; reset role")
    assert highest_fence(database) == 0
    mart.execute("insert into leaseway.leaseway_fence values ('mart.trees', 77), ('mart.other', 5)")
    assert highest_fence(database) == seen_by_targets(database) == 77

    monkeypatch.delenv("LEASEWAY_SECRET_MART")
    with pytest.raises(Refused, match="must answer"):
        seen_by_targets(database)


def test_a_secret_that_isnt_set_here_is_a_finding(run, mart, file, monkeypatch):
    monkeypatch.delenv("LEASEWAY_SECRET_MART")
    assert "unknown_secret" in run("manifest", "check", file, code=1)
