"""Each kind of failure, raised for real by a server: its code, and what the details name."""

import select
import socket
import threading
import time

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from chalicelib import codes
from chalicelib.exports import Column, Relation, SourceError
from chalicelib.exports.errors import CODES

from .test_records import ALL, files_of, quiet

A = [Column("a", "integer", "a")]
ABC = [*A, Column("b", "text", "b"), Column("c", "decimal", "c")]


def refusal(relation, folder, beat=quiet):
    """The error an export of the relation ends with: no file stays, and the details name only what they may."""
    with pytest.raises(SourceError) as raised:
        files_of(relation, folder, beat)
    assert list(folder.iterdir()) == []
    assert raised.value.code in codes.FAILURES
    assert raised.value.details.keys() <= codes.DETAILS
    return raised.value


def test_every_code_has_a_sentence():
    assert set(CODES.values()) <= set(codes.FAILURES)
    remedy = codes.FAILURES["source_conflict"].remedy
    assert "max_standby_streaming_delay" in remedy
    assert "hot_standby_feedback" in remedy


# Denied: which privilege, on what


@pytest.mark.parametrize("relation", ["open.closed", 'open."Odd closed"'])
def test_select_on_the_relation_is_named(source, tmp_path, relation):
    source.run(f"create table {relation} (a int)")
    source.run(f"revoke select on {relation} from {source.name}")

    error = refusal(Relation(source.dsn, relation, None, A), tmp_path)

    assert error.code == "source_denied"
    assert error.details == {"sqlstate": "42501", "relation": relation, "privilege": f"SELECT on {relation}"}


def test_usage_on_the_schema_is_named(source, tmp_path):
    source.run("create schema closed create table t (a int)")
    source.run(f"grant select on closed.t to {source.name}")

    error = refusal(Relation(source.dsn, "closed.t", None, A), tmp_path)

    assert (error.code, error.details["privilege"]) == ("source_denied", "USAGE on schema closed")


def test_the_one_relation_of_a_query_that_lacks_a_grant_is_named(source, tmp_path):
    source.run("create schema other")
    source.run(f"grant usage on schema other to {source.name}")
    for relation in ("open.trees", "open.roads", "other.roads", "open.road"):
        source.run(f"create table {relation} (a int)")
    for relation in ("open.roads", "open.road"):
        source.run(f"revoke select on {relation} from {source.name}")

    error = refusal(
        Relation(source.dsn, None, "select a from open.trees join open.roads using (a)", A),
        tmp_path,
    )

    assert error.details == {"sqlstate": "42501", "relation": "query", "privilege": "SELECT on open.roads"}


def test_what_the_owner_of_a_view_lacks_beneath_it_is_named(source, tmp_path):
    source.run(f"create role {source.name}_owner")
    try:
        source.run("create table open.base (a int)")
        source.run("create view open.shown as select a from open.base")
        source.run(f"alter view open.shown owner to {source.name}_owner")

        error = refusal(Relation(source.dsn, "open.shown", None, A), tmp_path)

        # The reader itself may read the table; whoever only asked for its own rights would find nothing.
        assert error.details == {"sqlstate": "42501", "relation": "open.shown", "privilege": "SELECT on open.base"}
    finally:
        source.run(f"drop owned by {source.name}_owner cascade")
        source.run(f"drop role {source.name}_owner")


def test_a_function_that_may_not_be_run_is_named(source, tmp_path):
    source.run("create function open.count_all() returns int language sql as 'select 1'")
    source.run("revoke execute on function open.count_all() from public")

    error = refusal(Relation(source.dsn, None, "select open.count_all() as a", A), tmp_path)

    assert error.details["privilege"] == "EXECUTE on function open.count_all()"


def test_the_language_of_the_servers_messages_does_not_matter(source, tmp_path):
    """The message only has to hold the name: this one is a function's own, with the same SQLSTATE."""
    source.run("create table open.closed (a int)")
    source.run(f"revoke select on open.closed from {source.name}")
    source.run(
        "create function open.refusing() returns int language plpgsql as"
        " $$ begin raise 'keine Berechtigung für Tabelle closed' using errcode = '42501'; end $$"
    )

    error = refusal(Relation(source.dsn, None, "select open.refusing() as a", A), tmp_path)

    assert error.details["privilege"] == "SELECT on open.closed"


def test_a_refusal_about_nothing_that_lacks_names_no_privilege(source, tmp_path):
    source.run(
        "create function open.refusing() returns int language plpgsql as"
        " $$ begin raise 'my canary-value' using errcode = '42501'; end $$"
    )

    error = refusal(Relation(source.dsn, None, "select open.refusing() as a", A), tmp_path)

    assert (error.code, error.details) == ("source_denied", {"sqlstate": "42501", "relation": "query"})


@pytest.mark.parametrize(
    ("statement", "sqlstate", "privilege"),
    [
        ("alter role {} password 'another'", "28P01", None),
        ("alter role {} nologin", "28000", "LOGIN"),
        ("revoke connect on database {} from public", "42501", "CONNECT on the database"),
    ],
)
def test_a_login_that_is_refused(source, tmp_path, statement, sqlstate, privilege):
    source.run(statement.format(source.name))

    error = refusal(Relation(source.dsn, "open.t", None, A), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_denied", sqlstate)
    assert error.details.get("privilege") == privilege


# Away, busy, slow


def test_no_server(tmp_path):
    error = refusal(Relation("postgresql://reader@127.0.0.1:9/x", "open.t", None, A), tmp_path)

    assert (error.code, error.details) == ("source_unreachable", {"relation": "open.t"})


def test_a_server_that_takes_the_login_and_never_answers_again(source, tmp_path, monkeypatch):
    monkeypatch.setattr("chalicelib.exports.relation.SILENCE", 0.3)
    source.run("create table open.t as select 1 as a")
    server = conninfo_to_dict(source.dsn)

    held = []  # else they would be closed
    with socket.create_server(("127.0.0.1", 0)) as pool:  # one that has no connection to the server left
        threading.Thread(target=pass_the_login, args=(pool, server, held), daemon=True).start()
        dsn = make_conninfo(source.dsn, host="127.0.0.1", port=pool.getsockname()[1], sslmode="disable")
        error = refusal(Relation(dsn, "open.t", None, A), tmp_path)
    for one in held:
        one.close()

    assert (error.code, error.details) == ("source_unreachable", {"relation": "open.t"})


def pass_the_login(pool, server, held):
    caller, _ = pool.accept()
    behind = socket.create_connection((server["host"], int(server["port"])))
    held += [caller, behind]
    while ready := select.select([caller, behind], [], [])[0]:
        for one, other in ((caller, behind), (behind, caller)):
            if one in ready:
                data = one.recv(65536)
                if not data or b"repeatable read" in data:
                    return
                other.sendall(data)


def test_too_many_connections(source, tmp_path):
    source.run(f"alter role {source.name} connection limit 0")

    error = refusal(Relation(source.dsn, "open.t", None, A), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_unreachable", "53300")


def test_an_administrator_who_ends_the_connection(source, tmp_path):
    source.run("create table open.t as select g as a, repeat('x', 1000) as b from generate_series(1, 20000) g")

    def end(records, **_):
        if records:
            source.run("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", source.name)

    error = refusal(Relation(source.dsn, "open.t", None, [*A, Column("b", "text", "b")]), tmp_path, end)

    assert (error.code, error.details.get("sqlstate")) in [
        ("source_unreachable", "57P01"),
        ("source_unreachable", None),  # the connection broke before the server's word came
    ]


def test_a_deadlock_is_a_conflict(source, tmp_path):
    """The export has lock 1 and waits for 2; the other one has that, asks for 1, and never looks for deadlocks."""
    source.set(deadlock_timeout="3s")
    query = (
        """select 1 as a from (select pg_advisory_xact_lock(1)) one, lateral (select pg_advisory_xact_lock(2)) two"""
    )
    waits = "select count(*) from pg_locks where locktype = 'advisory' and not granted and objid = 2"

    with psycopg.connect(make_conninfo(source.admin.info.dsn, password=source.admin.info.password)) as other:
        other.execute("set deadlock_timeout = '1h'")
        other.execute("select pg_advisory_xact_lock(2)")

        def ask():
            end = time.monotonic() + 20
            while source.run(waits).fetchone() == (0,) and time.monotonic() < end:
                pass
            other.execute("select pg_advisory_xact_lock(1)")

        asking = threading.Thread(target=ask)
        asking.start()
        error = refusal(Relation(source.dsn, None, query, A), tmp_path)
        asking.join()

    assert (error.code, error.details["sqlstate"]) == ("source_conflict", "40P01")


def test_a_lock_that_is_not_had_in_time_is_a_conflict(source, tmp_path, monkeypatch):
    monkeypatch.setattr("chalicelib.exports.relation.LOCK_WAIT", "50ms")
    source.run("create table open.t (a int)")
    with psycopg.connect(make_conninfo(source.admin.info.dsn, password=source.admin.info.password)) as other:
        other.execute("alter table open.t add b int")

        error = refusal(Relation(source.dsn, "open.t", None, A), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_conflict", "55P03")


def test_the_connections_own_time_out_takes_the_logins_place(source, tmp_path):
    source.set(statement_timeout="1h")
    query = "select 1 as a from pg_sleep(60)"

    error = refusal(Relation(source.dsn, None, query, A, statement_timeout=1), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_timeout", "57014")


def test_a_query_that_somebody_cancels_is_a_time_out(source, tmp_path, monkeypatch):
    monkeypatch.setattr("chalicelib.exports.relation.QUIET", 0.01)

    def cancel(**_):
        source.run("select pg_cancel_backend(pid) from pg_stat_activity where usename = %s", source.name)

    error = refusal(Relation(source.dsn, None, "select 1 as a from pg_sleep(60)", A), tmp_path, cancel)

    assert (error.code, error.details["sqlstate"]) == ("source_timeout", "57014")


# Bad records: which one, and which column


@pytest.mark.parametrize(
    ("expression", "sqlstate"),
    [
        ("convert_from(decode(case g when 77 then '610062' else '61' end, 'hex'), 'UTF8')", "22021"),
        ("case g when 77 then chr(g - 77) else 'x' end", "54000"),
        ("(case g when 77 then '\"\\u0000\"' else '\"x\"' end)::jsonb #>> '{}'", "22P05"),
    ],
)
def test_OD_76_the_record_with_a_NUL_and_its_column_are_named(source, tmp_path, expression, sqlstate):
    source.run(f"create view open.t as select g as a, {expression} as b, g as c from generate_series(1, 200) g")
    columns = [*A, Column("text", "text", "b"), Column("c", "integer", "c")]

    error = refusal(Relation(source.dsn, "open.t", None, columns), tmp_path)

    assert error.code == "source_bad_record"
    assert error.details == {"sqlstate": sqlstate, "relation": "open.t", "record": 77, "column": "b"}


@pytest.mark.parametrize("bad", ["a", "b", "c", "d", "e"])
def test_the_column_is_found_wherever_it_stands(source, tmp_path, bad):
    source.run("create table open.t as select g from generate_series(-999, 2000) g")
    picked = ", ".join(f"{'1 / g' if name == bad else 'g'} as {name}" for name in "abcde")
    columns = [Column(name, "integer", name) for name in "abcde"]

    error = refusal(Relation(source.dsn, None, f"select {picked} from open.t", columns), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_bad_record", "22012")
    assert (error.details["record"], error.details["column"]) == (1000, bad)


def test_a_record_fails_that_no_column_is_to_blame_for(source, tmp_path):
    source.run("create table open.t as select g as a from generate_series(-10, 10) g")

    error = refusal(Relation(source.dsn, None, "select a from open.t where 1 / a < 5", A), tmp_path)

    assert (error.code, error.details.get("column")) == ("source_bad_record", None)
    assert error.details["record"] == 11


def test_a_record_is_found_in_the_snapshot_that_failed(source, tmp_path):
    """The table is emptied as soon as the first pass reads: the second one still sees what the first one saw."""
    source.run("create table open.t as select g as a, 'x'::text as b from generate_series(1, 30000) g")
    source.run("update open.t set b = 'no number' where a = 29000")
    source.run("vacuum full open.t")
    emptied = []

    def empty(total, **_):
        if total and not emptied:
            emptied.append(source.run("delete from open.t"))

    query = "select a, case when b like 'no%' then b::int else a end as b from open.t"
    error = refusal(Relation(source.dsn, None, query, [*A, Column("b", "integer", "b")]), tmp_path, empty)

    assert emptied
    assert (error.details["sqlstate"], error.details["column"]) == ("22P02", "b")
    assert error.details["record"] == 30000  # the update moved it to the end


def test_the_search_for_a_record_beats_and_ends_with_the_lease(source, tmp_path, monkeypatch):
    monkeypatch.setattr("chalicelib.exports.relation.BATCH", 1000)
    source.run("create table open.t as select g as a from generate_series(1, 20000) g")
    searching = []

    class LeaseLost(Exception):
        pass

    def beat(bytes, **_):
        searching.append(bytes)
        if len(searching) > 50:
            raise LeaseLost

    with pytest.raises(LeaseLost):
        files_of(Relation(source.dsn, None, "select 1 / (20000 - a) as a from open.t", A), tmp_path, beat)

    assert set(searching[-40:]) == {searching[-1]}  # the same progress again and again, never less


def test_a_raised_exception_of_the_sources_own_is_a_bad_record(source, tmp_path):
    source.run(
        "create function open.strict(int) returns int language plpgsql immutable as"
        " $$ begin if $1 = 4 then raise 'my canary-value'; end if; return $1; end $$"
    )
    query = "select open.strict(g) as a, 'x' as b, 1.5 as c from generate_series(1, 9) g"

    error = refusal(Relation(source.dsn, None, query, ABC), tmp_path)

    assert error.code == "source_bad_record"
    assert error.details == {"sqlstate": "P0001", "relation": "query", "record": 4, "column": "a"}


@pytest.mark.parametrize("spec", ALL, ids=lambda spec: spec.format.name)
def test_a_record_that_a_worker_could_not_hold_is_named_by_its_size(source, tmp_path, monkeypatch, spec):
    monkeypatch.setattr("chalicelib.exports.relation.LARGEST", 300_000)
    filled = "repeat('x', 200000 * g) as b"
    source.run(f"create table open.t as select g as a, {filled}, 0.5 as c from generate_series(1, 2) g")

    with pytest.raises(SourceError) as raised:
        files_of(Relation(source.dsn, "open.t", None, ABC), tmp_path, specs=[spec])

    size = raised.value.details.pop("bytes")
    assert raised.value.code == "record_too_large"
    assert raised.value.details == {"relation": "open.t", "maximum": 300_000}
    assert 400_000 < size < 400_200

    monkeypatch.setattr("chalicelib.exports.relation.LARGEST", size)
    exported, _ = files_of(Relation(source.dsn, "open.t", None, ABC), tmp_path, specs=[spec])
    assert exported.records == 2
