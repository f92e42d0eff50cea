"""What `leaseway connection check` sees: every way to write that a login has, and each source that it can't read."""

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from chalicelib.exports import Column, Relation
from chalicelib.exports.check import Wanted, check
from chalicelib.exports.relation import snapshot
from chalicelib.exports.sample import of_relation

A = [Column("a", "integer", "a")]


@pytest.fixture
def server(source):
    source.run("create table open.t (a int, b text)")
    source.run(f"revoke create, temp on database {source.name} from public; revoke all on schema public from public")
    return source


def test_a_login_that_only_reads_has_nothing_to_mend(server):
    report = check(server.dsn, [Wanted("t", "open.t", None, A), Wanted("all", "open.t", None)])

    assert report.findings == []
    assert report.sources == {"t": "reads 1 column", "all": "reads 2 columns"}
    assert report.facts["reached"] == f"database {server.name} as {server.name}"
    assert report.facts["version"].startswith("PostgreSQL 1")
    assert report.facts["role"] == "primary"
    assert report.facts["encryption"] == "none, it stays on this machine"


WAYS = {
    "insert": ("grant insert on open.t to {0}", "INSERT on open.t"),
    "delete and truncate": ("grant delete, truncate on open.t to {0}", "DELETE, TRUNCATE on open.t"),
    "a single column": ("grant update (b) on open.t to {0}", "UPDATE on open.t"),
    "everybody may": ("grant insert on open.t to public", "INSERT on open.t"),
    "its own table": (
        "alter table open.t owner to {0}; revoke all on open.t from {0}; grant select on open.t to {0}",
        "ownership on open.t",
    ),
    "a view": ("create view open.v as select * from open.t; grant insert on open.v to {0}", "INSERT on open.v"),
    "a sequence": ("create sequence open.s; grant usage on sequence open.s to {0}", "UPDATE on sequence open.s"),
    "a schema": ("grant create on schema open to {0}", "CREATE on schema open"),
    "the database": ("grant create on database {0} to {0}", "CREATE on database {0}"),
    "a role it inherits": (
        "grant insert on open.t to {0}_w; grant {0}_w to {0}",
        "INSERT on open.t",
    ),
    "a role that it may become": (
        "alter role {0} noinherit; grant insert on open.t to {0}_w; grant {0}_w to {0}",
        "INSERT on open.t, as {0}_w",
    ),
    "a predefined role": ("grant pg_write_all_data to {0}", "INSERT, UPDATE, DELETE on open.t"),
    "making roles": ("alter role {0} createrole", "may make roles"),
    "a function with its owner's rights": (
        "create function open.f() returns void language sql security definer as 'delete from open.t'",
        "EXECUTE on function open.f(), which runs with the rights of postgres",
    ),
    "a superuser": ("alter role {0} superuser", "is a superuser"),
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_write_is_found_although_the_default_is_read_only(server, way):
    grant, found = WAYS[way]
    writer = f"{server.name}_w"
    server.run(f"create role {writer}")
    server.set(default_transaction_read_only="on")
    try:
        server.run(grant.format(server.name))

        report = check(server.dsn, [])

        said = [f"The login could write: {found.format(server.name)}. Revoke it, or make a login that only reads."]
        if way == "a superuser":
            assert report.findings == said
        else:
            assert set(said) <= set(report.findings)
            assert all("INSERT" in f or f in said or "pg_" in f or "as " in f for f in report.findings)
    finally:
        server.run(f"alter role {server.name} nosuperuser")
        server.run(f"drop owned by {writer}; drop role {writer}")


def test_nothing_is_hidden_by_a_search_path(server):
    server.run("create table open.closed (a int); insert into open.t values (1, 'x')")
    server.run(f"revoke select on open.closed from {server.name}; grant delete on open.t to {server.name}")
    wanted = [Wanted("t", "open.t", None, A), Wanted("all", "open.t", None), Wanted("closed", "open.closed", None)]
    before, looked = check(server.dsn, wanted), of_relation(Relation(server.dsn, "open.t", None, []))
    assert [
        finding for finding in before.findings if "DELETE on open.t" in finding or "SELECT on open.closed" in finding
    ]

    server.shadow()

    assert check(server.dsn, wanted) == before
    assert of_relation(Relation(server.dsn, "open.t", None, [])) == looked
    with snapshot(Relation(server.dsn, "open.t", None, [])) as seen:
        assert seen.filled(["b"]) == [1, 1]


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        (Wanted("x", "open.closed", None), "privilege SELECT on open.closed"),
        (Wanted("x", "closed.t", None), "privilege USAGE on schema closed"),
        (Wanted("x", "open.shown", None), "privilege SELECT on open.beneath"),
        (Wanted("x", None, "select a from open.t join open.closed using (a)"), "privilege SELECT on open.closed"),
        (Wanted("x", "open.gone", None), 'public."Bäume". Then register the source again'),
        (Wanted("x", "open.t", None, [Column("c", "text", "c")]), "column c"),
        (Wanted("x", "open.t", None, [Column("b", "integer", "b")]), "column b"),
        (Wanted("x", None, "select 1 as a, nonsense"), "A column that the definition or the source's query names"),
        (Wanted("x", None, "selec 1 as a"), "The source's query is no SQL that PostgreSQL can read."),
        (Wanted("x", None, "select 1 as a, 2 as a", A), "Give one of them an alias"),
    ],
)
def test_a_source_that_cannot_be_read_is_named_and_the_others_are_still_looked_at(server, wanted, said):
    server.run("create table open.closed (a int); create schema closed create table t (a int)")
    server.run(f"revoke select on open.closed from {server.name}")
    server.run(f"create role {server.name}_o; create table open.beneath (a int)")
    server.run(f"create view open.shown as select a from open.beneath; alter view open.shown owner to {server.name}_o")
    try:
        report = check(server.dsn, [Wanted("before", "open.t", None), wanted, Wanted("after", "open.t", None, A)])
    finally:
        server.run(f"drop view open.shown; drop role {server.name}_o")

    (finding,) = report.findings
    assert finding.startswith("Source x: ")
    assert said in finding
    assert list(report.sources) == ["before", "x", "after"]
    assert report.sources["x"].startswith("source_")
    assert report.sources["after"] == "reads 1 column"


def test_a_reader_of_single_columns_reads_what_is_published(server):
    server.run(f"revoke select on open.t from {server.name}; grant select (a) on open.t to {server.name}")

    assert check(server.dsn, [Wanted("t", "open.t", None, A)]).findings == []


@pytest.mark.parametrize(
    ("dsn", "said"),
    [
        ("postgresql://u@127.0.0.1:9/x", "doesn't answer. Look at its address in the secret"),
        ("postgresql://u:canary@db.example.org/x?sslmode=require", "sslmode=require"),
        ("nonsense canary", "isn't a connection string"),
    ],
)
def test_a_server_that_is_not_reached_is_one_finding(dsn, said):
    report = check(dsn, [Wanted("t", "open.t", None)])

    (finding,) = report.findings
    assert said in finding
    assert "canary" not in finding
    assert report.facts == {}


def test_a_wrong_password_is_said(server):
    report = check(make_conninfo(server.dsn, password="canary"), [])

    assert "Check user and password in the connection's secret" in report.findings[0]
    assert "GRANT" not in report.findings[0]
    assert "28P01" in report.findings[0]


def test_a_database_that_is_not_there_is_a_matter_of_the_address(server):
    report = check(make_conninfo(server.dsn, dbname="nowhere"), [])

    assert "The server has no database of the name" in report.findings[0]


def test_nothing_is_written_there(server):
    """Not even by a function that says it only reads, and so is called while the statement is planned."""
    server.run(
        "create function open.writes() returns int language sql security definer"
        " as 'insert into open.t values (1) returning a';"
        "create function open.seems() returns int language plpgsql immutable as 'begin return open.writes(); end'"
    )

    report = check(server.dsn, [Wanted("t", None, "select open.seems() as a")])

    assert any("sqlstate 25006" in finding for finding in report.findings), report.findings
    assert server.run("select count(*) from open.t").fetchone() == (0,)
    server.run("select open.seems()")
    assert server.run("select count(*) from open.t").fetchone() == (1,)


# An older server, with TLS and a standby


def test_an_older_server_is_good_enough(old_source):
    old_source.run("create table open.t (a int)")

    report = check(old_source.dsn, [Wanted("t", "open.t", None, A)])

    assert report.findings == []
    assert report.facts["version"].startswith("PostgreSQL 15.")


def test_a_certificate_that_fits_is_verified_and_another_is_not_accepted(old_source, debian):
    remote = conninfo_to_dict(old_source.dsn) | {"host": "db.test", "hostaddr": "127.0.0.1", "sslmode": "verify-full"}
    known = make_conninfo(**remote, sslrootcert=str(debian.authority))

    assert check(known, []).facts["encryption"] == "TLSv1.3, the certificate is verified"
    for wrong, found in (
        (make_conninfo(**remote, sslrootcert="/etc/ssl/certs/ca-certificates.crt"), "an unknown authority"),
        (make_conninfo(**remote, sslrootcert="/gone.crt"), "no authority in the file of sslrootcert"),
        (make_conninfo(known, host="other.test"), "a certificate of another name"),
    ):
        (finding,) = check(wrong, []).findings
        assert "doesn't prove that it is the one" in finding
        assert found in finding


def test_a_standby_says_so_with_its_settings(old_source, debian):
    old_source.run("create table open.t (a int)")
    debian.caught_up()
    dsn = make_conninfo(old_source.dsn, port=conninfo_to_dict(debian.standby)["port"])

    report = check(dsn, [Wanted("t", "open.t", None, A)])

    assert report.findings == []
    assert report.facts["role"] == "replica (max_standby_streaming_delay 0, hot_standby_feedback off)"


def test_a_login_that_could_write_on_the_primary_is_found_on_the_standby(old_source, debian):
    old_source.run("create table open.t (a int)")
    old_source.run(f"grant insert on open.t to {old_source.name}")
    debian.caught_up()
    dsn = make_conninfo(old_source.dsn, port=conninfo_to_dict(debian.standby)["port"])
    with psycopg.connect(dsn) as connection:
        assert connection.execute("show transaction_read_only").fetchone() == ("on",)

    assert any("INSERT on open.t" in finding for finding in check(dsn, []).findings)


def test_a_server_that_is_too_old_is_a_finding(server, monkeypatch):
    monkeypatch.setattr("chalicelib.exports.check.OLDEST", 99)

    (finding,) = check(server.dsn, []).findings
    assert finding.endswith("is too old: 99 or later is exported from.")
