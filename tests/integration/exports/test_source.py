"""What the source may do to an export: refuse, change, be slow, go away; and what an export does to the source."""

import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from psycopg.conninfo import make_conninfo

from chalicelib.exports import CSV, JSON, Column, FileSpec, LocalFile, Relation, SourceError, export
from chalicelib.exports.check import Wanted, check

from .test_records import READERS, files_of, quiet

A = [Column("a", "integer", "a")]


def refusal(relation, folder):
    """The error an export of the relation ends with; nothing of it stays in the folder."""
    with pytest.raises(SourceError) as raised:
        files_of(relation, folder)
    assert list(folder.iterdir()) == []
    assert raised.value.__cause__ is None  # no message of the server's travels along
    return raised.value


def test_a_relation_the_reader_may_not_read_is_denied(source, tmp_path):
    source.run("create table open.closed (a int)")
    source.run(f"revoke select on open.closed from {source.name}")

    error = refusal(Relation(source.dsn, "open.closed", None, A), tmp_path)

    assert (error.code, error.details["relation"]) == ("source_denied", "open.closed")


def test_a_schema_the_reader_may_not_enter_is_denied(source, tmp_path):
    source.run("create schema closed create table t (a int)")

    assert refusal(Relation(source.dsn, "closed.t", None, A), tmp_path).code == "source_denied"


def test_a_query_that_writes_is_denied(source, tmp_path):
    source.run("create table open.written (a int)")
    source.run(f"grant insert on open.written to {source.name}")
    source.run(
        "create function open.writing() returns int language sql as 'insert into open.written values (1) returning a'"
    )

    error = refusal(Relation(source.dsn, None, "select open.writing() as a", A), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_denied", "25006")


@pytest.mark.parametrize(
    "query",
    [
        "select 1 as a) as q limit 0; commit; create table open.made (a int); select a from (select 1 as a",
        "select 1 as a; select 1 as a",
        "select 1 as",
    ],
)
def test_a_query_is_one_statement_that_stays_in_its_brackets(source, tmp_path, query):
    source.run(f"grant create on schema open to {source.name}")

    error = refusal(Relation(source.dsn, None, query, A), tmp_path)

    assert (error.code, error.details) == ("source_changed", {"sqlstate": "42601", "relation": "query"})
    assert source.run("select to_regclass('open.made')").fetchone() == (None,)


@pytest.mark.parametrize(
    ("query", "code", "sqlstate"),
    [
        ("select $1::int as a", "source_changed", "08P01"),
        ("select open.sets() as a", "source_changed", "25001"),
    ],
)
def test_what_no_query_may_do_is_not_waited_for(source, tmp_path, query, code, sqlstate):
    source.run(
        "create function open.sets() returns int language plpgsql as"
        " 'begin set transaction isolation level serializable; return 1; end'"
    )

    error = refusal(Relation(source.dsn, None, query, A), tmp_path)

    assert (error.code, error.details["sqlstate"]) == (code, sqlstate)


@pytest.mark.parametrize(
    ("name", "value"), [("intervalstyle", "postgres"), ("client_encoding", "LATIN1"), ("timezone", "Asia/Tokyo")]
)
def test_a_query_that_changes_how_values_are_written_is_refused(source, tmp_path, name, value):
    query = f"select pg_catalog.length(pg_catalog.set_config('{name}', '{value}', true)) as a"

    error = refusal(Relation(source.dsn, None, query, A), tmp_path)

    assert (error.code, error.details) == ("source_changed", {"sqlstate": "55P02", "relation": "query"})


def test_a_function_that_puts_its_setting_back_is_not(source, tmp_path):
    source.run(
        "create function open.spelled() returns int language sql set intervalstyle = 'postgres'"
        " as $$ select pg_catalog.length('1 day'::interval::text) $$"
    )

    _, contents = files_of(Relation(source.dsn, None, "select open.spelled() as a", A), tmp_path)

    assert contents["csv"] == b"a\n5\n"


@pytest.mark.parametrize("relation", ["open.gone", "gone.a", 'open."a; drop table x"', "a.b.c.d", "open.t where false"])
def test_a_relation_that_is_not_there_has_changed(source, tmp_path, relation):
    source.run("create table open.t (a int)")

    error = refusal(Relation(source.dsn, relation, None, A), tmp_path)

    assert (error.code, error.details["relation"]) == ("source_changed", relation)


def test_a_dropped_column_is_named(source, tmp_path):
    source.run("create table open.t (a int, b int, c text)")
    source.run("alter table open.t drop column b")
    columns = [*A, Column("second", "integer", "b"), Column("c", "text", "c")]

    for relation in (
        Relation(source.dsn, "open.t", None, columns),
        Relation(source.dsn, None, "select *\nfrom open.t", columns),
    ):
        error = refusal(relation, tmp_path)
        assert error.code == "source_changed"
        assert error.details == {"sqlstate": "42703", "relation": relation.relation or "query", "column": "b"}


def test_all_columns_that_are_missing_are_named_as_far_as_twenty_go(source, tmp_path):
    source.run("create table open.t (a int, b int)")
    gone = [Column(f"g{n}", "integer", f"g{n}") for n in range(22)]

    error = refusal(Relation(source.dsn, "open.t", None, [*A, gone[0], Column("b", "integer", "b"), gone[1]]), tmp_path)
    assert error.details == {"sqlstate": "42703", "relation": "open.t", "column": "g0", "others": ["g1"]}

    error = refusal(Relation(source.dsn, None, "select * from open.t", [*gone, *A]), tmp_path)
    assert (error.details["column"], error.details["others"]) == ("g0", [f"g{n}" for n in range(1, 20)])
    assert error.details["more"] == 2


def test_a_reader_of_single_columns_is_told_the_first_that_is_missing(source, tmp_path):
    source.run("create table open.t (a int, private text)")
    source.run(f"revoke select on open.t from {source.name}")
    source.run(f"grant select (a) on open.t to {source.name}")

    gone = [Column(name, "integer", name) for name in ("b", "c")]
    error = refusal(Relation(source.dsn, "open.t", None, [*A, *gone]), tmp_path)

    assert error.details == {"sqlstate": "42703", "relation": "open.t", "column": "b"}


def test_a_column_with_line_breaks_in_its_name_is_read_and_missing_it_is_named(source, tmp_path):
    source.run('create table open.t ("a\n\nb" int, "\tc " text)')
    columns = [Column("a", "integer", "a\n\nb"), Column("c", "text", "\tc ")]

    for at, missing in enumerate([Column("x", "text", "a\nb"), Column("x", "text", "c")]):
        error = refusal(Relation(source.dsn, "open.t", None, [*columns[:at], missing, *columns[at:]]), tmp_path)
        assert (error.code, error.details["column"]) == ("source_changed", missing.source)
    assert files_of(Relation(source.dsn, "open.t", None, columns), tmp_path)[1]["csv"] == b"a,c\n"


def test_a_missing_column_is_named_where_the_server_counts_bytes(make_source, tmp_path):
    source = make_source("encoding SQL_ASCII locale 'C'")
    source.run('create table open.t ("численность населения" int, b int)'.encode())
    columns = [Column(name, "integer", name) for name in ("численность населения", "x", "b", "y")]

    error = refusal(Relation(source.dsn, "open.t", None, columns), tmp_path)
    assert (error.details["column"], error.details["others"]) == ("x", ["y"])
    error = refusal(Relation(source.dsn, "open.t", None, columns[:2]), tmp_path)
    assert error.details["column"] == "x"


def test_a_name_that_the_server_would_cut_is_no_column(source, tmp_path):
    source.run(f'create table open.t ("{"x" * 63}" int)')

    cut = [Column(name, "integer", name * 64) for name in "xy"]
    error = refusal(Relation(source.dsn, "open.t", None, cut), tmp_path)
    named = {"column": "x" * 64, "others": ["y" * 64]}
    assert (error.code, error.details) == ("source_changed", {"sqlstate": "42703", "relation": "open.t", **named})
    assert files_of(Relation(source.dsn, "open.t", None, [Column("a", "integer", "x" * 63)]), tmp_path)


def test_a_column_nobody_asked_for_is_named_and_not_published(source, tmp_path):
    source.run("create table open.t (a int, new text)")
    query = Relation(source.dsn, None, "select a, 1 as more from open.t", A)

    assert export(Relation(source.dsn, "open.t", None, A), [], None, beat=quiet).unpublished == ["new"]
    assert export(query, [], None, beat=quiet).unpublished == ["more"]
    assert files_of(Relation(source.dsn, "open.t", None, A), tmp_path)[1]["csv"] == b"a\n"


def test_a_reader_of_single_columns_reads_those(source, tmp_path):
    source.run("create table open.t (a int, private text)")
    source.run(f"revoke select on open.t from {source.name}")
    source.run(f"grant select (a) on open.t to {source.name}")

    assert export(Relation(source.dsn, "open.t", None, A), [], None, beat=quiet).unpublished == []
    assert files_of(Relation(source.dsn, "open.t", None, A), tmp_path)[1]["csv"] == b"a\n"


def test_a_column_missing_inside_the_query_is_not_blamed_on_one_of_ours(source, tmp_path):
    error = refusal(Relation(source.dsn, None, "select 1 as a\nwhere nope > 1", A), tmp_path)

    assert (error.code, error.details) == ("source_changed", {"sqlstate": "42703", "relation": "query"})


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("integer", "text"),
        ("integer", "numeric"),
        ("time", "timetz"),
        ("timestamp", "timestamptz"),
        ("timestamptz", "timestamp"),
    ],
)
def test_a_column_of_another_type_is_named(source, tmp_path, was, becomes):
    source.run(f"create table open.t (a {becomes}, b text, c {becomes})")
    columns = [Column("a", was, "a"), Column("b", "text", "b"), Column("c", was, "c")]

    error = refusal(Relation(source.dsn, "open.t", None, columns), tmp_path)

    assert (error.code, error.details) == ("source_changed", {"relation": "open.t", "column": "a", "others": ["c"]})


def test_a_wider_integer_and_a_domain_are_the_type_they_are_declared_as(source, tmp_path):
    source.run("create domain open.age as int check (value >= 0)")
    source.run("create table open.t (a int8, b open.age)")
    source.run("insert into open.t values (1, 2)")

    _, contents = files_of(Relation(source.dsn, "open.t", None, [*A, Column("b", "integer", "b")]), tmp_path)

    assert contents["csv"] == b"a,b\n1,2\n"


def test_the_sources_statement_time_out_is_a_time_out(source, tmp_path):
    source.set(statement_timeout="50ms")

    error = refusal(Relation(source.dsn, None, "select 1 as a from pg_sleep(10)", A), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_timeout", "57014")


def test_a_record_that_cannot_be_made_is_a_bad_record(source, tmp_path):
    source.run("create table open.t as select g as a from generate_series(-100, 100) g")

    error = refusal(Relation(source.dsn, None, "select 1 / a as a from open.t", A), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_bad_record", "22012")


def test_text_of_a_database_without_encoding_is_checked(make_source, tmp_path):
    source = make_source("encoding SQL_ASCII locale 'C'")
    source.run("create table open.t (t text)")
    source.run("insert into open.t values (convert_from('\\x6772fc6e'::bytea, 'SQL_ASCII'))")

    error = refusal(Relation(source.dsn, "open.t", None, [Column("t", "text", "t")]), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_bad_record", "22021")


@pytest.mark.parametrize("columns", [["t", "€", "字"], ["größe", "漢字", "€"]])
def test_a_name_that_the_source_s_encoding_lacks_is_the_definition_s_fault(make_source, tmp_path, columns):
    source = make_source("encoding LATIN1 locale 'C'")
    source.run("create table open.t as select 'größe' as t")
    published = [Column(name, "text", "t") for name in columns]

    error = refusal(Relation(source.dsn, "open.t", None, published), tmp_path)
    report = check(source.dsn, [Wanted("t", "open.t", None, published)])

    details = {"sqlstate": "22P05", "relation": "open.t", "column": columns[1], "others": columns[2:]}
    assert (error.code, error.details) == ("source_encoding", details)
    assert report.sources == {"t": "source_encoding"}
    assert any(f"column {columns[1]}" in finding and "another `name`" in finding for finding in report.findings)
    assert files_of(Relation(source.dsn, "open.t", None, published[:1]), tmp_path)[0].records == 1


@pytest.mark.parametrize(
    ("relation", "query", "columns"),
    [
        ("open.t", None, ["漢字", "字"]),
        ('open."漢字"', None, []),
        (None, "select a from open.t where '漢字' <> ''", []),
    ],
)
def test_what_the_source_s_encoding_cannot_say_is_not_there(make_source, tmp_path, relation, query, columns):
    source = make_source("encoding LATIN1 locale 'C'")
    source.run("create table open.t as select 1 as a")
    wanted = [Column(f"b{n}", "integer", column) for n, column in enumerate(columns)] or A

    error = refusal(Relation(source.dsn, relation, query, wanted), tmp_path)

    named = error.details.get("column"), *error.details.get("others", ())
    assert (error.code, named) == ("source_changed", tuple(columns or [None]))


def test_a_locked_table_is_a_conflict(source, tmp_path, monkeypatch):
    monkeypatch.setattr("chalicelib.exports.relation.LOCK_WAIT", "50ms")
    source.run("create table open.t (a int)")

    with source.admin.transaction():
        source.run("lock table open.t in access exclusive mode")
        error = refusal(Relation(source.dsn, "open.t", None, A), tmp_path)

    assert (error.code, error.details["sqlstate"]) == ("source_conflict", "55P03")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"port": 1}, "source_unreachable"),
        ({"password": "wrong"}, "source_denied"),
        ({"user": "nobody-there"}, "source_denied"),
        ({"dbname": "nowhere"}, "source_changed"),
    ],
)
def test_a_connection_that_cannot_be_made(source, tmp_path, change, code):
    error = refusal(Relation(make_conninfo(source.dsn, **change), "open.t", None, A), tmp_path)

    assert error.code == code
    assert "only-reads" not in repr(error) + repr(error.details)


def test_too_many_connections_are_away_for_a_while(source, tmp_path):
    source.run(f"alter role {source.name} connection limit 0")

    assert refusal(Relation(source.dsn, "open.t", None, A), tmp_path).code == "source_unreachable"


def test_a_source_that_dies_in_the_middle_is_unreachable(source, tmp_path):
    source.run("create table open.t as select g as a, repeat('x', 1000) as b from generate_series(1, 20000) g")

    def kill(records, **_):
        if records:
            source.run("select pg_terminate_backend(pid) from pg_stat_activity where usename = %s", source.name)

    with pytest.raises(SourceError) as raised:
        files_of(Relation(source.dsn, "open.t", None, [*A, Column("b", "text", "b")]), tmp_path, kill)

    assert raised.value.code == "source_unreachable"
    assert list(tmp_path.iterdir()) == []


def test_the_secret_is_not_shown(source):
    assert "only-reads" not in repr(Relation(source.dsn, "open.t", None, A))


class Stop(Exception):
    """What a beat raises when the lease is lost."""


def test_a_beat_that_raises_ends_the_query_at_the_source_and_leaves_no_file(source, tmp_path):
    source.run("create table open.t as select g as a, repeat('x', 1000) as b from generate_series(1, 20000) g")

    def stop(records, **_):
        if records > 300:
            raise Stop

    with pytest.raises(Stop):
        files_of(Relation(source.dsn, "open.t", None, [*A, Column("b", "text", "b")]), tmp_path, stop)

    assert list(tmp_path.iterdir()) == []


def test_the_beat_goes_on_while_the_source_has_nothing_to_say_and_can_stop_it(source, tmp_path, monkeypatch):
    monkeypatch.setattr("chalicelib.exports.relation.QUIET", 0.01)
    beats = []

    def stop(**progress):
        beats.append(progress)
        if len(beats) == 5:
            raise Stop

    with pytest.raises(Stop):
        files_of(Relation(source.dsn, None, "select 1 as a from pg_sleep(20)", A), tmp_path, stop)

    assert beats == [{"records": 0, "bytes": 0, "total": 0}] * 5
    end = time.monotonic() + 10
    active = "select count(*) from pg_stat_activity where usename = %s and state = 'active'"
    while source.run(active, source.name).fetchone() != (0,):
        assert time.monotonic() < end, "the query goes on at the source"


def test_OD_66_records_are_counted_alike_in_the_result_the_progress_and_every_file(source, tmp_path):
    source.run("create table open.t as select g as a from generate_series(1, 50000) g")
    beats = []

    exported, contents = files_of(
        Relation(source.dsn, "open.t", None, A), tmp_path, lambda **progress: beats.append(progress)
    )

    assert exported.records == 50_000
    for name, read in READERS.items():  # each of them several batches long
        assert [record["a"] for record in read(contents[name])] == [str(n) for n in range(1, 50_001)], name
    written = sum(file.bytes for file in exported.files)
    assert beats[-1] == {"records": 50_000, "bytes": written, "total": 50_000}
    for name in ("records", "bytes"):
        counts = [beat[name] for beat in beats]
        assert counts == sorted(counts)


def test_OD_66_a_query_that_gives_other_records_each_time_is_no_export(source, tmp_path):
    # Advisory locks are all that a reader can change: this query has one record more each time it runs.
    query = """
        select a
          from (select pg_advisory_lock(count(*)::int) from pg_locks where locktype = 'advisory') lock_one_more,
               generate_series(1, (select count(*)::int from pg_locks where locktype = 'advisory')) a"""

    error = refusal(Relation(source.dsn, None, query, A), tmp_path)

    assert (error.code, error.details["records"]) == ("source_changed", 2)


def test_the_files_show_one_moment_although_the_source_goes_on(source, tmp_path):
    source.run("create table open.t as select g as a, repeat('x', 100) as b from generate_series(1, 5000) g")

    def write(**_):
        source.run("delete from open.t where a = (select min(a) from open.t)")
        source.run("insert into open.t values (0, 'new')")

    exported, contents = files_of(Relation(source.dsn, "open.t", None, A), tmp_path, write)

    assert exported.records == 5000
    numbers = [int(line) for line in contents["csv"].split()[1:]]
    assert numbers == list(range(1, 5001))
    assert numbers == [int(n) for n in re.findall(rb'"a":(\d+)', contents["json"])]
    assert numbers == [int(n) for n in re.findall(rb"<a>(\d+)</a>", contents["xml"])]


@pytest.mark.parametrize("emptied", ["truncate open.t", "drop table open.t; create table open.t (a int)"])
def test_a_table_that_is_filled_anew_while_the_export_begins_is_never_seen_empty(source, tmp_path, emptied):
    source.run("create table open.t as select g as a from generate_series(1, 5) g")
    waits = "select exists (select from pg_locks where not granted and relation = %s)"
    table = source.run("select 'open.t'::regclass::oid").fetchone()[0]

    with ThreadPoolExecutor(1) as another:
        with source.admin.transaction():
            source.run(emptied)
            source.run("insert into open.t select generate_series(11, 17)")
            exporting = another.submit(files_of, Relation(source.dsn, "open.t", None, A), tmp_path)
            while not (exporting.done() or source.run(waits, table).fetchone()[0]):
                pass
        exported, contents = exporting.result()

    assert exported.records == 7
    assert contents["csv"].split() == [b"a", *(b"%d" % a for a in range(11, 18))]


def test_OD_65_the_first_bytes_are_written_before_the_last_row_is_there(source, tmp_path):
    source.run("create table open.t as select g as a, repeat('x', 1000) as b from generate_series(1, 20000) g")
    events = []

    class Watched(LocalFile):
        def write(self, data):
            events.append(("write", len(data)))
            super().write(data)

    export(
        Relation(source.dsn, "open.t", None, [*A, Column("b", "text", "b")]),
        [FileSpec(CSV)],
        lambda name, _: Watched(tmp_path / name),
        beat=lambda records, **_: events.append(("read", records)),
    )

    first_row = next(i for i, (kind, size) in enumerate(events) if kind == "write" and size > 1000)
    assert max(records for kind, records in events[: first_row + 1] if kind == "read") < 1000
    assert max(size for kind, size in events if kind == "write") < 512 * 1024


def test_files_may_be_asked_for_one_at_a_time(source, tmp_path):
    source.run("create table open.t as select 1 as a")

    exported, _ = files_of(Relation(source.dsn, "open.t", None, A), tmp_path, quiet, [FileSpec(JSON)])

    assert [(file.format, file.media_type) for file in exported.files] == [("json", "application/json")]
