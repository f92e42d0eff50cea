"""Debian's PostgreSQL 15, primary and standby, as the source: the same files, and a standby's own kind of conflict.

And as a refresh's target, for it has what our own server hasn't: citext.
"""

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from chalicelib.exports import Column, Relation, SourceError
from chalicelib.pipelines.export.resumable import PASSING
from chalicelib.pipelines.refresh.manifest import Manifest
from chalicelib.pipelines.refresh.target import Target

from .readers import read_csv
from .test_records import files_of, quiet

COLUMNS = [
    Column(name, type, name)
    for name, type in {
        "n": "integer",
        "t": "text",
        "d": "decimal",
        "f": "double",
        "at": "timestamptz",
        "day": "date",
        "j": "json",
        "u": "uuid",
        "b": "binary",
    }.items()
]
TABLE = """
create table open.t as
select g as n
     , case g % 3 when 0 then 'Bäume; "grün"' when 1 then '' end as t
     , (g / 7.0)::numeric(20, 6) as d
     , case g when 5 then 'NaN'::float8 else g / 3.0::float8 end as f
     , timestamptz '2024-03-31 01:30:00+00' + g * interval '1 hour' as at
     , date '2024-02-28' + g as day
     , jsonb_build_object('g', g) as j
     , md5(g::text)::uuid as u
     , decode(md5(g::text), 'hex') as b
  from generate_series(1, 200) g
"""


def standby(source, debian):
    debian.caught_up()
    return make_conninfo(source.dsn, port=conninfo_to_dict(debian.standby)["port"])


def test_an_older_server_and_its_standby_write_the_same_files_as_our_own(source, old_source, debian, tmp_path):
    contents = []
    for server in (source, old_source):
        server.run(TABLE)
    for name, dsn in {"own": source.dsn, "old": old_source.dsn, "standby": standby(old_source, debian)}.items():
        (tmp_path / name).mkdir()
        contents.append(files_of(Relation(dsn, "open.t", None, COLUMNS), tmp_path / name)[1])

    assert contents[0] == contents[1] == contents[2]


@pytest.mark.parametrize(("name", "type_"), [("t", "text"), ("j", "json"), ("a", "text[]")])
def test_the_order_is_that_of_code_points_whatever_the_collation_there(old_source, tmp_path, name, type_):
    old_source.run("create table open.t as select t, to_json(t) as j, array[t] as a from unnest('{Z,a,ä,A}'::text[]) t")
    assert old_source.run("select string_agg(t, '' order by t) from open.t").fetchone() == ("aAäZ",)

    _, contents = files_of(Relation(old_source.dsn, "open.t", None, [Column(name, type_, name)]), tmp_path)

    assert [record[name].strip('[]"') for record in read_csv(contents["csv"])] == ["A", "Z", "a", "ä"]


@pytest.fixture
def vacuumed(old_source, debian, monkeypatch):
    """A beat that has what an export still reads vacuumed away at the primary; the standby doesn't wait for anybody."""
    monkeypatch.setattr("chalicelib.exports.relation.QUIET", 0.05)
    old_source.run("create table open.t as select g as n, repeat('x', 1000) as t from generate_series(1, 50000) g")
    done = []

    def vacuum(bytes, **_):
        if not done and bytes >= vacuum.after:
            old_source.run("delete from open.t")
            done.append(old_source.run("vacuum open.t"))
            debian.caught_up()

    vacuum.after = 0
    return vacuum


def test_a_standby_that_puts_replication_first_is_a_conflict(old_source, debian, tmp_path, vacuumed):
    query = "select n, t from open.t where pg_sleep(0.01) is not null"

    with pytest.raises(SourceError) as raised:
        files_of(Relation(standby(old_source, debian), None, query, COLUMNS[:2]), tmp_path, vacuumed)

    assert (raised.value.code, raised.value.details["sqlstate"]) == ("source_conflict", "40001")


def test_a_standby_that_cuts_the_connection_for_it_is_waited_for_too(old_source, debian, tmp_path, vacuumed):
    """While it is sending, PostgreSQL can't say why it ends."""
    vacuumed.after = 1

    with pytest.raises(SourceError) as raised:
        files_of(Relation(standby(old_source, debian), "open.t", None, COLUMNS[:2]), tmp_path, vacuumed)

    assert raised.value.code in PASSING


@pytest.mark.parametrize(
    ("change", "details"),
    [
        ("revoke select on open.t from {0}", {"sqlstate": "42501", "privilege": "SELECT on open.t"}),
        ("revoke usage on schema open from {0}", {"sqlstate": "42501", "privilege": "USAGE on schema open"}),
        ("alter table open.t drop column t", {"sqlstate": "42703", "column": "t"}),
    ],
)
@pytest.mark.parametrize("where", ["primary", "standby"])
def test_failures_are_told_apart_there_too(old_source, debian, tmp_path, change, details, where):
    old_source.run("create table open.t (n int, t text)")
    old_source.run(change.format(old_source.name))
    dsn = old_source.dsn if where == "primary" else standby(old_source, debian)

    with pytest.raises(SourceError) as raised:
        files_of(Relation(dsn, "open.t", None, COLUMNS[:2]), tmp_path, quiet)

    assert details.items() <= raised.value.details.items()


def test_a_bad_record_is_found_on_a_standby(old_source, debian, tmp_path):
    old_source.run("create table open.t as select g from generate_series(-9, 100) g")
    dsn = standby(old_source, debian)

    with pytest.raises(SourceError) as raised:
        files_of(Relation(dsn, None, "select g as n, (1 / g)::text as t from open.t", COLUMNS[:2]), tmp_path)

    assert (raised.value.details["record"], raised.value.details["column"]) == (10, "t")


@pytest.mark.parametrize(
    ("type_", "there", "comes", "key"),
    [("text", "abc", b"ABC", ["id"]), ("text", "abc", b"ABC", ["id", "facts"]), ("text[]", "{abc}", b"{ABC}", ["id"])],
)
def test_a_refresh_updates_what_the_targets_citext_calls_equal(old_source, type_, there, comes, key):
    old_source.run("create extension citext")
    old_source.shadow()
    old_source.run(f"create schema leaseway authorization {old_source.name}")
    old_source.run(f"create table open.trees (id int primary key, facts {type_.replace('text', 'citext')})")
    old_source.run(f"grant all on open.trees to {old_source.name}")
    old_source.run(f"insert into open.trees values (7, '{there}'), (8, '{there}')")
    columns = [{"name": "id", "type": "integer"}, {"name": "facts", "type": type_}]
    contract = {"name": "trees", "source": "trees", "target": {"connection": "mart", "table": "open.trees"}}
    [parsed] = Manifest.parse({"contracts": [contract | {"columns": columns, "key": key}]}).contracts
    target = Target(old_source.dsn, parsed, 1, f"refresh_{'0' * 32}_0", lambda: None)

    target.take()
    target.begin_staging()
    target.stage([[b"7\t%b\n" % comes, b"8\t%b\n" % there.encode()]])
    with target.merging():
        target.check(0, None, None)
        counts = target.merge()
        target.settle({})
        target.commit(10)
    target.close()

    assert counts == {"inserted": 0, "updated": 1, "deleted": 0}
    assert old_source.run("select facts::text from open.trees order by id").fetchall() == [(comes.decode(),), (there,)]
