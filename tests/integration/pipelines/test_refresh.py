"""A refresh makes its targets as its manifest says, each in one piece, each once."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from chalicelib.datasets import Invalid
from chalicelib.datasets import registry as datasets
from chalicelib.db import DatabaseAway
from chalicelib.engine import LeaseLost, Refusal
from chalicelib.exports import relation
from chalicelib.pipelines.export.slots import take
from chalicelib.pipelines.refresh import registry, steps, target
from chalicelib.pipelines.refresh.manifest import Manifest
from chalicelib.pipelines.refresh.target import Target, drop_staging

from .conftest import CLOSED, Killed
from .refreshing import CONTRACT

WAITING = "select pid from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
PLANTED = "CANARY-a-name-of-somebody"


def checks(**more):
    return {"checks": more}


def claim(team, job):
    leased = team.engine.claim("work", job=job, ask=uuid4(), lease=timedelta(seconds=60))
    assert leased is not None
    return leased


def other(name, **more):
    """A second contract, into a table of its own."""
    return {"name": name, "target": {"connection": "mart", "table": f"mart.{name}"}} | more


def make(team, *tables):
    for table in tables:
        team.admin.execute(f"create table mart.{table} (id int primary key, species text)")
        team.admin.execute(f"grant select, insert, update, delete on mart.{table} to leaseway_app")


def outcomes(team, job):
    return {name: (row["outcome"], row["code"]) for name, row in team.audits(job).items()}


def test_the_target_becomes_what_the_source_is(team):
    team.register()
    team.admin.execute("insert into mart.trees values (1, 'tree 1', 'kept'), (2, 'old', 'kept'), (777, 'gone', 'gone')")
    team.admin.execute("truncate mart.history")

    done = team.run()

    assert (done.state, done.status, done.version) == ("REFRESHED", "succeeded", 1)
    assert team.target() == team.source()
    assert team.history() == [("DELETE", 1), ("INSERT", 98), ("UPDATE", 1)]
    audit = team.audits(done.id)["trees"]
    counts = {name: audit[name] for name in ("outcome", "read", "inserted", "updated", "deleted", "rejected")}
    assert counts == {"outcome": "refreshed", "read": 100, "inserted": 98, "updated": 1, "deleted": 1, "rejected": 0}
    assert [(check["check"], check["passed"]) for check in audit["checks"]] == [
        (name, True) for name in ("key", "unique", "max_rejected", "min_rows", "max_drop")
    ]
    assert team.admin.execute("select note from mart.trees where id < 3").fetchall() == [("kept",), ("kept",)]
    assert team.staging() == []


def test_the_second_refresh_changes_only_what_differs(team):
    team.register()
    team.run()
    team.admin.execute("truncate mart.history; update src.trees set name = 'felled' where id = 7")

    done = team.run()

    assert team.history() == [("UPDATE", 1)]
    assert team.target() == team.source()
    assert team.audits(done.id)["trees"]["updated"] == 1


def test_a_refresh_is_of_the_manifest_that_was_the_newest_when_it_was_accepted(team):
    make(team, "parks")
    team.register()
    job = team.refresh()
    assert team.register(other("parks")) == 2
    team.engine.work("work", job=job, until=lambda: 900.0)

    done = team.engine.job(job)
    assert (done.status, done.version) == ("succeeded", 1)
    assert [(name, row["manifest"]) for name, row in team.audits(job).items()] == [("trees", 1)]
    assert team.target("mart.parks") == []


def test_a_source_is_read_in_the_revision_that_the_manifest_pinned(team):
    team.register()
    team.admin.execute("create table src.newer as select 1 as id, 'newer' as name")
    team.admin.execute("grant select on src.newer to leaseway_app")
    datasets.register_source(team.db, "trees", "src", "src.newer", None)
    assert team.run().status == "succeeded"
    assert team.target() == team.source()

    team.register(checks(max_drop=1))  # a newer version pins the newer one
    team.run()
    assert team.target() == [(1, "newer")]


@pytest.mark.parametrize("ends", ["refreshed", "failed"])
def test_an_audit_says_when_its_own_contract_was_begun_and_when_it_was_done(team, monkeypatch, ends):
    make(team, "parks")
    team.register({}, other("parks", **checks(min_rows=1 if ends == "refreshed" else 101)))
    real, begin = Target.check, team.clock.now()

    def takes_seven_seconds(self, *arguments):
        team.clock.advance("7 s")
        return real(self, *arguments)

    monkeypatch.setattr(Target, "check", takes_seven_seconds)
    audits = team.audits(team.run().id)

    assert audits["parks"]["outcome"] == ends
    took = {
        name: [(row[at] - begin).total_seconds() for at in ("started_at", "finished_at")]
        for name, row in audits.items()
    }
    assert took == {"trees": [0, 7], "parks": [7, 14]}


def test_two_contracts_of_one_table_by_two_connections_are_each_done(team):
    """What stands at the fence is the first one's; the second one must not take it for its own."""
    datasets.add_connection(team.db, "martb", "LEASEWAY_SECRET_MART")
    team.admin.execute(
        "create table src.more as select 1000 + n as id, 'more ' || n as name from generate_series(1, 5) n"
    )
    team.admin.execute("grant select on src.more to leaseway_app")
    datasets.register_source(team.db, "more", "src", "src.more", None)
    second = {"name": "more", "source": "more", "target": {"connection": "martb", "table": "mart.trees"}}
    team.register({}, second | {"mode": "merge", "depends_on": ["trees"]})
    job = team.run()
    assert job.status == "succeeded"
    audits = team.audits(job.id)
    assert [(audits[name]["read"], audits[name]["inserted"]) for name in ("trees", "more")] == [(100, 100), (5, 5)]
    assert len(team.target()) == 105


def test_a_merge_deletes_nothing_and_may_be_empty(team):
    team.register({"mode": "merge"})
    team.admin.execute("insert into mart.trees values (777, 'stays')")
    first = team.run()
    team.admin.execute("truncate src.trees")
    second = team.run()

    assert team.admin.execute("select count(*) from mart.trees").fetchone() == (101,)
    assert [team.audits(job.id)["trees"]["deleted"] for job in (first, second)] == [0, 0]
    assert second.status == "succeeded"


def test_a_table_that_is_all_key_is_replaced_too(team):
    team.register({"columns": [{"name": "id", "type": "integer"}]})
    team.run()
    assert team.admin.execute("select count(*), count(species) from mart.trees").fetchone() == (100, 0)


def test_a_target_that_holds_a_key_twice_is_left_as_it_was_and_told(team):
    """No unique index keeps them out, and a merge by key would leave both."""
    team.admin.execute("alter table mart.trees drop constraint trees_pkey")
    team.admin.execute("create unique index on mart.trees (id, note)")
    team.admin.execute("insert into mart.trees values (1, 'one', 'a'), (1, 'another', 'b'), (777, 'gone', 'c')")
    team.register()
    failed = team.run()

    audit = team.audits(failed.id)["trees"]
    assert (failed.code, audit["code"]) == ("contract_failed", "target_has_key_twice")
    assert audit["details"] == {"relation": "mart.trees"}
    assert sorted(team.target()) == [(1, "another"), (1, "one"), (777, "gone")]

    team.admin.execute("delete from mart.trees where note = 'b'")  # what goes may stand there twice
    team.admin.execute("insert into mart.trees values (777, 'gone', 'd')")
    assert team.run().status == "succeeded"
    assert team.target() == team.source()


@pytest.mark.parametrize(
    ("type_", "first", "later"),
    [
        ("integer[]", "{1,NULL,3}", "{1,NULL,4}"),
        ("text[]", '{"a, b","{",NULL,"NULL"}', "{}"),
        ("timestamptz[]", '{"2026-03-02 09:00:00+02"}', '{"2026-03-02 09:00:00+01"}'),
        ("json[]", '{"{\\"a\\": 1}"}', '{"{\\"a\\":  1}"}'),
        ("interval", "-1 mon +3 days -00:00:01", "30 days"),
        ("interval", "1 mon", "30 days"),  # which PostgreSQL calls equal
        ("interval[]", '{"1 mon"}', '{"30 days",NULL}'),
    ],
)
@pytest.mark.parametrize("chunk", [None, 40])
def test_intervals_and_arrays_become_what_they_are_at_the_source(team, type_, first, later, chunk):
    team.admin.execute(f"alter table src.trees add facts {type_}; alter table mart.trees add facts {type_}")
    team.admin.execute("update src.trees set facts = %s", [first])
    team.register({"columns": [*CONTRACT["columns"], {"name": "facts", "type": type_}], "chunk_rows": chunk})

    assert team.run().status == "succeeded"
    team.admin.execute("update src.trees set facts = %s where id = 7", [later])
    audit = team.audits(team.run().id)["trees"]

    assert (audit["inserted"], audit["updated"], audit["deleted"]) == (0, 1, 0)
    there, here = [
        team.admin.execute(f"select id, facts::text from {table} order by id").fetchall()
        for table in ("mart.trees", "src.trees")
    ]
    assert there == here


@pytest.mark.parametrize(
    ("type_", "source", "target_", "first", "later"),
    [
        ("decimal", "numeric", "numeric", "1.0", "1.00"),
        ("decimal[]", "numeric[]", "numeric[]", "{1.0}", "{1.00}"),
        ("double", "float8", "float8", "-0", "0"),
        ("interval", "interval", "interval", "30 days", "1 mon"),
        ("interval[]", "interval[]", "interval[]", '{"30 days"}', '{"1 mon"}'),
        ("json", "jsonb", "jsonb", '{"a": 1.0}', '{"a": 1.00}'),
    ],
)
@pytest.mark.parametrize("key", [["id"], ["id", "facts"]])
def test_what_only_is_written_differently_is_updated(team, type_, source, target_, first, later, key):
    if "facts" in key and type_.endswith(("json", "[]")):
        pytest.skip("the key can't hold it")
    team.admin.execute(f"alter table src.trees add facts {source}; alter table mart.trees add facts {target_}")
    team.admin.execute("update src.trees set facts = %s", [first])
    team.register({"columns": [*CONTRACT["columns"], {"name": "facts", "type": type_}], "key": key})
    team.run()
    team.admin.execute("update src.trees set facts = %s where id = 7", [later])
    audit = team.audits(team.run().id)["trees"]

    assert (audit["inserted"], audit["updated"], audit["deleted"]) == (0, 1, 0)
    there, here = [
        team.admin.execute(f"select id, facts::text from {table} order by id").fetchall()
        for table in ("mart.trees", "src.trees")
    ]
    assert there == here
    assert team.audits(team.run().id)["trees"]["updated"] == 0


def test_an_array_of_something_else_at_the_target_is_named(team):
    team.admin.execute("alter table src.trees add facts int[]; alter table mart.trees add facts text[]")
    team.register({"columns": [*CONTRACT["columns"], {"name": "facts", "type": "integer[]"}]})

    audit = team.audits(team.run().id)["trees"]

    assert (audit["code"], audit["details"]) == ("target_changed", {"relation": "mart.trees", "column": "facts"})


def test_json_is_compared_as_it_is_written(team):
    team.admin.execute("alter table src.trees add facts json default '{\"a\": 1}'")
    team.admin.execute("alter table mart.trees add facts json")
    team.register({"columns": [*CONTRACT["columns"], {"name": "facts", "type": "json"}]})
    team.run()
    assert team.audits(team.run().id)["trees"]["updated"] == 0


# Checks


@pytest.mark.parametrize(
    ("declared", "change", "check", "found"),
    [
        ({"min_rows": 101}, "", "min_rows", 100),
        ({}, "truncate src.trees", "min_rows", 0),
        ({"max_rows": 99}, "", "max_rows", 100),
        ({"not_null": ["species"]}, "update src.trees set name = null where id < 4", "not_null", 3),
        ({"unique": [["species"]]}, "update src.trees set name = 'same' where id < 4", "unique", 3),
        ({"accepted_values": {"species": ["tree 1", "it's"]}}, "", "accepted_values", 99),
        (
            {},
            "alter table src.trees drop constraint trees_pkey; insert into src.trees values (7, 'again')",
            "unique",
            2,
        ),
    ],
)
def test_a_failed_check_leaves_the_target_as_it_was(team, declared, change, check, found):
    team.admin.execute("insert into mart.trees values (1, 'as it was')")
    team.register(checks(**declared))
    team.admin.execute(change or "select 1")

    failed = team.run()

    assert (failed.code, failed.details["contract"], failed.details["found"]) == ("contract_failed", "trees", 1)
    assert team.target() == [(1, "as it was")]
    audit = team.audits(failed.id)["trees"]
    assert (audit["outcome"], audit["code"], audit["inserted"]) == ("failed", "check_failed", 0)
    [verdict] = [each for each in audit["checks"] if each["check"] == check and not each["passed"]]
    assert found in (verdict.get("found"), verdict.get("rejected"))
    assert team.staging() == []  # nothing of what was read is left there


def test_what_is_staged_of_a_failed_contract_is_left_to_cleanup_where_its_target_is_away(team, monkeypatch):
    def away(*_):
        raise steps.TargetError("target_unreachable", {"relation": "mart.trees"})

    monkeypatch.setattr(steps, "drop_staging", away)
    team.register(checks(min_rows=101))
    assert team.run().code == "contract_failed"
    assert len(team.staging()) == 1
    team.office.run(45)
    assert team.staging() == []


def test_a_stale_worker_whose_check_fails_leaves_the_staging_to_the_next_one(team, monkeypatch):
    """They have one table: it is dropped only by whoever has written the contract's audit."""
    team.register()
    job, stale, real = team.refresh(), [], Target.check

    def loses_its_lease(self, *arguments):
        if not stale:
            stale.append(self)
            team.clock.advance("20 min")
            team.engine.recover()
            raise target.ChecksFailed(target.Seen())
        return real(self, *arguments)

    monkeypatch.setattr(Target, "check", loses_its_lease)
    team.engine.work("work", job=job, until=lambda: 900.0)
    assert len(team.staging()) == 1
    team.office.run(5)
    assert team.engine.job(job).status == "succeeded"


def test_fewer_records_than_half_of_the_last_run_are_no_refresh_unless_the_contract_says_so(team):
    team.register()
    team.run()
    team.admin.execute("delete from src.trees where id > 49")

    failed = team.run()
    assert failed.code == "contract_failed"
    [verdict] = [each for each in team.audits(failed.id)["trees"]["checks"] if not each["passed"]]
    assert verdict == {"check": "max_drop", "passed": False, "found": 49, "bound": 50}
    assert len(team.target()) == 100

    team.register(checks(max_drop=0.51))
    assert team.run().status == "succeeded"
    assert len(team.target()) == 49


def test_rejected_records_are_counted_left_out_and_stored_nowhere(team):
    rows = [(1, None), (2, PLANTED), (3, PLANTED), (4, "other")]
    team.admin.execute("update src.trees set name = 'good'")
    for id, name in rows:
        team.admin.execute("update src.trees set name = %s where id = %s", [name, id])
    team.register(checks(not_null=["species"], accepted_values={"species": ["good"]}, max_rejected=4))

    done = team.run()

    audit = team.audits(done.id)["trees"]
    assert (done.status, audit["read"], audit["rejected"], audit["inserted"]) == ("succeeded", 100, 4, 96)
    assert {name for _, name in team.target()} == {"good"}
    for schema in ("engine", "refresh", "leaseway", "mart"):
        tables = team.admin.execute(
            "select oid::regclass::text from pg_class where relkind = 'r' and relnamespace::regnamespace::text = %s",
            [schema],
        ).fetchall()
        for (table,) in tables:
            assert PLANTED not in str(team.admin.execute(f"select t::text from {table} t").fetchall()), table


@pytest.mark.parametrize(
    ("newest", "status", "watermark"),
    [
        ("2026-03-02 08:00:00+00", "succeeded", "2026-03-02 08:00:00+00:00"),
        ("2026-02-27 08:00:00+00", "failed", "2026-02-27 08:00:00+00:00"),
        ("infinity", "failed", "None"),
    ],
)
def test_the_newest_record_must_be_fresh(team, newest, status, watermark):
    team.admin.execute(f"alter table src.trees add seen timestamptz default '{newest}'")
    team.admin.execute("alter table mart.trees add seen timestamptz")
    columns = [*CONTRACT["columns"], {"name": "seen", "type": "timestamptz"}]
    team.register({"columns": columns, "checks": {"freshness": {"column": "seen", "max_age": "2 days"}}})

    ended = team.run()

    assert ended.status == status
    assert str(team.audits(ended.id)["trees"]["watermark"]) == watermark


# Several contracts


def test_what_depends_on_a_failed_contract_is_skipped_and_the_rest_goes_on(team):
    make(team, "parks", "roads", "streets")
    team.register(
        other("streets", depends_on=["roads"]),
        other("roads", depends_on=["trees"]),
        {"checks": {"min_rows": 1000}},
        other("parks"),
    )

    failed = team.run()

    assert (failed.code, failed.details["contract"], failed.details["found"]) == ("contract_failed", "trees", 1)
    assert outcomes(team, failed.id) == {
        "trees": ("failed", "check_failed"),
        "roads": ("skipped", "dependency_failed"),
        "streets": ("skipped", "dependency_failed"),
        "parks": ("refreshed", None),
    }
    assert len(team.target("mart.parks")) == 100
    assert team.target("mart.roads") == team.target("mart.streets") == []


def test_a_contract_that_is_done_isnt_repeated_by_the_next_attempt(team, monkeypatch):
    make(team, "parks")
    team.register({}, other("parks", depends_on=["trees"]))
    real, dead, begun = steps._Refresh._refresh, [], []

    def dies_at_the_second(self, contract, *arguments):
        begun.append(contract.name)
        if contract.name == "parks" and not dead:
            dead.append(contract.name)
            raise Killed
        real(self, contract, *arguments)

    monkeypatch.setattr(steps._Refresh, "_refresh", dies_at_the_second)
    done = team.run(minutes=4)

    assert (done.status, done.attempts) == ("succeeded", 2)
    assert begun == ["trees", "parks", "parks"]
    assert team.history() == [("INSERT", 100)]
    assert set(outcomes(team, done.id).values()) == {("refreshed", None)}


def test_what_is_away_holds_up_its_own_contract_and_what_depends_on_it_and_spends_no_attempt(team):
    make(team, "parks", "roads")
    datasets.add_connection(team.db, "elsewhere", "LEASEWAY_SECRET_ELSEWHERE")
    datasets.register_source(team.db, "away", "elsewhere", "src.trees", None)
    team.office.point(LEASEWAY_SECRET_ELSEWHERE=CLOSED.replace("http", "postgresql"))
    team.register({"source": "away"}, other("roads", depends_on=["trees"]), other("parks"))

    waiting = team.run(minutes=3)

    assert waiting.waiting_for.code == "source_unreachable"
    assert outcomes(team, waiting.id) == {"parks": ("refreshed", None)}
    team.office.point(LEASEWAY_SECRET_ELSEWHERE=team.secret)
    team.office.run(15)
    done = team.engine.status(waiting.id)
    assert (done.status, done.attempts) == ("succeeded", 1)
    assert len(team.target()) == len(team.target("mart.roads")) == 100


def test_a_target_that_is_away_at_the_deadline_is_what_the_failure_names(team):
    team.register()
    team.office.point(LEASEWAY_SECRET_MART=CLOSED.replace("http", "postgresql"))
    job = team.run(minutes=3).id
    team.clock.advance("6 hours")
    team.office.run(2)
    failed = team.engine.status(job)
    assert (failed.code, failed.details["waiting_for"]) == ("deadline_exceeded", "target_unreachable")


def test_a_source_whose_slots_are_taken_is_waited_for(team, dsn):
    team.register()
    datasets.register_source(team.db, "others", "src", "src.trees", None)
    job = team.refresh()
    from chalicelib.pipelines.export import ExportSubject

    subject = ExportSubject(key=uuid4(), dataset="trees", definition=1, source="trees", source_revision=1)
    blocking = claim(team, team.engine.accept("export", subject).job.id)
    take(blocking, "src")
    team.engine.work("work", job=job, until=lambda: 900.0)
    assert team.engine.job(job).waiting_for.code == "free_connection"
    blocking.fail("cancelled", {})
    team.office.run(2)
    assert team.engine.job(job).status == "succeeded"


@pytest.mark.parametrize(
    ("change", "code", "details"),
    [
        (
            "alter table mart.trees drop column species",
            "target_changed",
            {"relation": "mart.trees", "sqlstate": "42703"},
        ),
        ("alter table mart.trees alter id type text", "target_changed", {"relation": "mart.trees", "column": "id"}),
        (
            "create type mart.text as (other text); alter table mart.trees drop species, add species mart.text",
            "target_changed",
            {"relation": "mart.trees", "column": "species"},
        ),
        ("drop schema leaseway", "target_changed", {"relation": "mart.trees", "sqlstate": "3F000"}),
        ("revoke insert on mart.trees from leaseway_app", "target_denied", {}),
        (
            "alter table mart.trees rename to plants; create view mart.trees as select * from mart.plants;"
            " grant all on mart.trees to leaseway_app",
            "target_is_view",
            {"relation": "mart.trees"},
        ),
        (
            "alter table mart.trees add check (id < 50)",
            "target_refused",
            {"relation": "mart.trees", "sqlstate": "23514"},
        ),
        ("alter table mart.trees alter species type varchar(3)", "target_refused", {"sqlstate": "22001"}),
        ("alter table src.trees drop column name", "source_changed", {"relation": "trees", "column": "name"}),
        ("revoke select on src.trees from leaseway_app", "source_denied", {"relation": "trees"}),
    ],
)
def test_whatever_stands_in_the_way_is_named_and_the_rest_goes_on(team, change, code, details):
    make(team, "parks", "roads")
    team.admin.execute(
        "create table src.parks as select id, name from src.trees; grant select on src.parks to leaseway_app"
    )
    datasets.register_source(team.db, "parks", "src", "src.parks", None)
    team.register({}, other("parks", source="parks"), other("roads", depends_on=["trees"]))
    team.admin.execute(change.replace("drop column name", "rename column name to called"))

    failed = team.run()

    audit = team.audits(failed.id)["trees"]
    assert (failed.code, audit["code"]) == ("contract_failed", code)
    assert details.items() <= audit["details"].items()
    assert team.admin.execute("select count(*) from mart.trees").fetchone() == (0,)
    # The schema leaseway is the whole connection's: without it parks can't be done either.
    alone = change != "drop schema leaseway"
    assert outcomes(team, failed.id) == {
        "trees": ("failed", code),
        "parks": ("refreshed", None) if alone else ("failed", code),
        "roads": ("skipped", "dependency_failed"),
    }
    assert len(team.target("mart.parks")) == (100 if alone else 0)
    assert team.target("mart.roads") == []


@pytest.mark.parametrize("chunk", [{}, {"chunk_rows": 10}])
def test_a_target_that_is_its_own_source_by_another_connection_is_left_as_it_was(team, chunk):
    datasets.register_source(team.db, "trees", "src", "mart.trees", None)
    team.register({"columns": [{"name": "id", "type": "integer"}, {"name": "species", "type": "text"}]} | chunk)
    team.admin.execute("insert into mart.trees values (1, 'oak')")

    audit = team.audits(team.run().id)["trees"]

    assert (audit["code"], audit["details"]) == ("target_is_source", {"relation": "mart.trees"})
    assert team.history() == [("INSERT", 1)]


@pytest.mark.parametrize("error", [OverflowError(PLANTED), psycopg.errors.UntranslatableCharacter(PLANTED)])
def test_a_defect_that_one_contract_meets_is_its_own_failure_and_the_rest_goes_on(team, monkeypatch, capsys, error):
    make(team, "parks", "roads")
    team.register({}, other("parks"), other("roads", depends_on=["trees"]))
    real = registry.last_run

    def broken(sql, of):
        if of == "mart/mart.trees":
            raise error
        return real(sql, of)

    monkeypatch.setattr(registry, "last_run", broken)
    failed = team.run()

    assert (failed.code, failed.details["contract"], failed.details["found"]) == ("contract_failed", "trees", 1)
    assert outcomes(team, failed.id) == {
        "trees": ("failed", "internal_error"),
        "parks": ("refreshed", None),
        "roads": ("skipped", "dependency_failed"),
    }
    details = {"exception": type(error).__name__} | ({"sqlstate": "22P05"} if isinstance(error, psycopg.Error) else {})
    assert team.audits(failed.id)["trees"]["details"] == details
    said = capsys.readouterr()
    assert "contract_broken" in said.out + said.err
    assert PLANTED not in said.out + said.err


def test_a_defect_after_the_targets_commit_is_no_failure_of_the_contract_it_is_read_back(team, monkeypatch):
    team.register()
    real, met = registry.add_audit, []

    def broken(*arguments, **more):
        if not met:
            met.append(1)
            raise OverflowError
        real(*arguments, **more)

    monkeypatch.setattr(registry, "add_audit", broken)
    done = team.run(minutes=10)

    assert (done.status, team.history()) == ("succeeded", [("INSERT", 100)])
    assert outcomes(team, done.id) == {"trees": ("refreshed", None)}


@pytest.mark.parametrize(
    ("secret", "code"), [("", "unknown_secret"), ("postgresql://x@example.org/y?sslmode=disable", "bad_address")]
)
def test_an_address_that_cant_be_used_is_the_contracts_fault(team, secret, code):
    team.register()
    team.office.point(LEASEWAY_SECRET_MART=secret)
    failed = team.run()
    assert team.audits(failed.id)["trees"]["code"] == code


def test_while_the_targets_server_is_silent_the_lease_is_kept(team, monkeypatch):
    """The target's rows are locked: the merge waits, and beats; then they are free again."""
    monkeypatch.setattr(target, "QUIET", 0.01)
    team.register()
    locking = psycopg.connect(team.secret)
    locking.execute("lock table mart.trees in share mode")
    beats, real = [], steps._Refresh._beat

    def beat(self):
        if team.admin.execute(WAITING).fetchone():
            beats.append(1)
            locking.rollback()
        real(self)

    monkeypatch.setattr(steps._Refresh, "_beat", beat)
    assert team.run().status == "succeeded"
    locking.close()
    assert beats


def test_what_a_manifest_names_must_be_there_and_be_what_it_is_taken_for(team):
    described = {"key": "k", "bytes": 1, "sha256": "x", "records": 1, "dialect": {}, "columns": []}
    datasets.register_file(team.db, "file", described)
    with pytest.raises(Invalid) as invalid:
        team.register(
            other("a", source="nothing"),
            other("b", source_revision=7),
            other("c", source="file"),
            other("d") | {"target": {"connection": "nothing", "table": "mart.d"}},
            other("e") | {"target": {"connection": "src", "table": "mart.e"}},
        )
    for (field, detail), (wanted, said) in zip(
        invalid.value.faults,
        (
            ("contracts[0].source", "isn't registered: "),
            ("contracts[1].source", "isn't registered in revision 7"),
            ("contracts[2].source", "is no table or query"),
            ("contracts[3].target.connection", "isn't known"),
            ("contracts[4].target.connection", "is one that sources are read by"),
        ),
        strict=True,
    ):
        assert (field, detail[: len(said)]) == (wanted, said)
    assert registry.manifests(team.db) == []


def test_two_manifests_at_the_same_instant_are_two_versions(team):
    """The second waits for the first one's key, finds it taken, and asks again."""
    with psycopg.connect(team.secret) as first, ThreadPoolExecutor(1) as pool:
        first.execute("insert into refresh.manifest values (1, '{}', repeat('0', 64), engine.clock())")
        second = pool.submit(team.register)
        while not team.admin.execute(WAITING).fetchone():
            assert not second.done(), "it did not wait"
        first.commit()
        assert second.result() == 2


# The fences


def test_a_stale_worker_changes_nothing_in_the_target(team, monkeypatch):
    """It has staged everything when it falls asleep; another one does the work; then it wakes up."""
    team.register()
    job = team.refresh()
    asleep, real = [], Target.check

    def falls_asleep(self, *arguments):
        if not asleep:
            asleep.append(self)
            team.clock.advance("20 min")
            team.engine.recover()
            team.clock.advance("1 min")
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Target, "check", real)
                # The staging transaction of the first is over, its merge has begun: its fence is held.
                self._connection.execute("rollback")
                team.engine.work("work", job=job, until=lambda: 900.0)
            self._begin()
        return real(self, *arguments)

    monkeypatch.setattr(Target, "check", falls_asleep)
    team.engine.work("work", job=job, until=lambda: 900.0)

    assert team.engine.job(job).status == "succeeded"
    assert team.history() == [("INSERT", 100)]


def test_a_worker_whose_job_was_ended_meanwhile_changes_nothing_in_the_target(team, monkeypatch):
    """Nobody has taken the target's fence: it is the job's own row that keeps it out."""
    team.register()
    job = team.refresh()
    real = Target.settle

    def too_late(self, applied):
        real(self, applied)
        team.clock.advance("31 hours")
        team.engine.recover()

    monkeypatch.setattr(Target, "settle", too_late)
    team.engine.work("work", job=job, until=lambda: 900.0)

    assert team.engine.status(job).code in ("deadline_exceeded", "attempts_exhausted")
    assert team.target() == []
    assert team.audits(job) == {}


def test_a_lost_reply_to_the_targets_commit_is_read_back(team, monkeypatch):
    team.register()
    real, lost = Target.commit, []

    def commits_unheard(self, patience):
        real(self, patience)
        if not lost:
            lost.append(self)
            raise steps.TargetError("target_unreachable", {"relation": "mart.trees"})

    monkeypatch.setattr(Target, "commit", commits_unheard)
    done = team.run(minutes=3)

    assert (done.status, done.attempts) == ("succeeded", 1)
    assert team.history() == [("INSERT", 100)]
    assert team.audits(done.id)["trees"]["inserted"] == 100


def test_a_newer_fence_at_the_target_than_the_database_can_give_is_told(team):
    team.register()
    team.run()
    team.admin.execute("update leaseway.leaseway_fence set fence = fence + 1000000")
    failed = team.run()
    assert team.audits(failed.id)["trees"]["code"] == "fence_regressed"


def test_a_newer_fence_that_another_one_of_ours_has_is_a_lost_lease(team):
    team.register()
    team.run()
    job = team.refresh()
    leased = claim(team, job)
    team.admin.execute("update leaseway.leaseway_fence set fence = %s", [leased.claim_id + 1])
    with pytest.raises(LeaseLost):
        steps.refresh_targets(leased)


# Chunks


def test_a_long_copy_goes_on_in_the_next_invocation_where_the_last_one_ended(team, monkeypatch):
    team.admin.execute("alter table src.trees drop constraint trees_pkey; alter table src.trees alter id drop not null")
    team.admin.execute("insert into src.trees values (null, 'no key'), (null, 'none either'), (10, 'again')")
    team.register({"chunk_rows": 10, "checks": {"max_rejected": 4}})
    job, calls, staged = team.refresh(), [], []
    real = Target.stage

    def counted(self, batches, **more):
        calls.append(team.engine.job(job).claim_id)
        staged.append(real(self, batches, **more))
        return staged[-1]

    monkeypatch.setattr(Target, "stage", counted)
    for _ in range(12):  # each invocation has time for a chunk
        left = iter([900.0] * 11)
        team.engine.work("work", job=job, until=lambda left=left: next(left, 10.0))
    team.engine.work("work", job=job, until=lambda: 900.0)

    done = team.engine.job(job)
    assert (done.status, done.attempts) == ("succeeded", 1)
    assert len(set(calls)) > 3
    assert sum(staged) == 101  # none a second time: all that have a key
    audit = team.audits(job)["trees"]
    # 98 with keys of their own, ten twice, two without: the last four are rejected.
    assert (audit["read"], audit["rejected"], audit["inserted"]) == (103, 4, 99)
    assert [id for id, _ in team.target()] == [n for n in range(1, 101) if n != 10]


def test_text_keys_are_chunked_in_one_order_whatever_the_servers_collation(team):
    team.admin.execute("update src.trees set name = chr(64 + id % 60) || '''' || id")
    team.admin.execute("alter table mart.trees drop constraint trees_pkey, add primary key (species)")
    team.register({"chunk_rows": 7, "key": ["species"]})
    done = team.run()
    assert done.status == "succeeded"
    assert team.target() == team.source()


@pytest.mark.parametrize("chunk_rows", [None, 1000])
def test_a_contract_that_a_whole_invocation_isnt_enough_for_fails_with_the_remedy(team, chunk_rows):
    team.register({"chunk_rows": chunk_rows})
    job = team.refresh()
    for _ in range(2):  # the first may have been claimed late in its invocation
        assert team.audits(job) == {}
        left = iter([900.0] * 6)
        team.engine.work("work", job=job, until=lambda left=left: next(left, 10.0))
    team.office.run(1)
    assert team.audits(job)["trees"]["code"] == "outlasts_invocation"


def test_a_contract_that_was_late_once_and_then_gets_on_is_late_no_more(team):
    team.register({"chunk_rows": 10})
    job = team.refresh()
    for last, late in (("begin_staging", "true"), ("stage", "false")):
        left, real = [900.0], getattr(Target, last)

        def and_then_time_is_up(self, *arguments, real=real, left=left, **more):
            done = real(self, *arguments, **more)
            left[0] = 10.0
            return done

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Target, last, and_then_time_is_up)
            team.engine.work("work", job=job, until=lambda left=left: left[0])
        found = team.db.one(
            "select checkpoint -> 'value' ->> 'late' as late from engine.job where id = %(job)s", job=job
        )
        assert found == {"late": late}
    team.office.run(1)
    assert team.engine.job(job).status == "succeeded"


def test_a_source_that_gives_nothing_for_a_while_is_waited_for(team, monkeypatch):
    """Each second without a row is an empty batch, at which the lease is kept."""
    monkeypatch.setattr(relation, "QUIET", 0)
    team.admin.execute("insert into src.trees select n, repeat('x', 1000) from generate_series(1000, 5000) as n")
    team.register()
    assert team.run().status == "succeeded"
    assert team.target() == team.source()


def test_a_contract_that_comes_late_in_an_invocation_is_left_to_the_next_one(team):
    make(team, "parks")
    team.register({}, other("parks", depends_on=["trees"]))
    job = team.refresh()
    real = registry.add_audit
    left = [900.0]
    with pytest.MonkeyPatch.context() as patch:

        def slow(*arguments, **more):
            left[0] = 10.0
            real(*arguments, **more)

        patch.setattr(registry, "add_audit", slow)
        team.engine.work("work", job=job, until=lambda: left[0])
    assert outcomes(team, job) == {"trees": ("refreshed", None)}
    assert team.engine.job(job).status == "running"
    team.office.run(1)
    assert team.engine.job(job).status == "succeeded"


# Stopping


@pytest.mark.parametrize("code", ["cancelled", "deadline_exceeded"])
def test_a_refresh_that_is_cancelled_or_past_its_deadline_stops_before_its_next_contract(team, monkeypatch, code):
    make(team, "parks")
    team.register({}, other("parks", depends_on=["trees"]))
    real = registry.add_audit

    def audited(*arguments, **more):
        real(*arguments, **more)
        ending.append(arguments)

    ending: list = []
    monkeypatch.setattr(registry, "add_audit", audited)
    beat = steps._Refresh._at_a_boundary

    def boundary(self):
        if ending and code == "cancelled":
            team.engine.cancel(job)
        elif ending:
            team.clock.advance("7 hours")
        beat(self)

    monkeypatch.setattr(steps._Refresh, "_at_a_boundary", boundary)
    job = team.refresh()
    team.office.work()
    team.engine.recover()

    assert team.engine.status(job).code == code
    assert outcomes(team, job) == {"trees": ("refreshed", None)}
    assert team.target("mart.parks") == []


def test_a_refresh_that_is_switched_off_meanwhile_ends_before_its_next_contract(team):
    team.register()
    job = team.refresh()
    registry.disable(team.db)
    team.office.work()
    assert team.engine.status(job).code == "not_enabled"
    assert team.target() == []


# What isn't accepted


def test_it_is_refused_while_it_is_switched_off_or_has_no_manifest(team):
    with pytest.raises(Refusal) as refused:
        team.refresh()
    assert refused.value.code == "no_manifest"
    registry.disable(team.db)
    with pytest.raises(Refusal) as refused:
        team.refresh()
    assert refused.value.code == "not_enabled"


def test_a_schedule_starts_it_as_the_newest_manifest_says(team):
    from chalicelib.engine import Cadence

    team.register()
    team.register(checks(min_rows=2))
    team.engine.set_schedule("refresh", "refresh", {}, Cadence("day", "02:00", "UTC"))
    team.clock.advance("1 day")
    team.office.run(1)
    [done] = team.engine.jobs(pipeline="refresh")
    assert (done.status, done.subject) == ("succeeded", {"manifest": 2})


def test_how_fresh_a_target_is_is_known_of_those_that_were_refreshed(team):
    make(team, "parks")
    assert team.register({}, other("parks", source="trees")) == 1
    team.admin.execute("drop table mart.parks")
    job = team.run().id

    found = {
        contract.name: (row["job_id"], row["outcome"], row["records"])
        for contract, row in registry.targets(team.db, Manifest.parse(registry.manifest(team.db)["body"]))
    }
    assert found == {"trees": (job, "refreshed", 100), "parks": (job, "failed", None)}


@pytest.mark.parametrize("digest", ["latest", "AB" * 32, "ab" * 31])
def test_what_is_no_digest_names_no_package(digest):
    registry.check_digest("ab" * 32)
    with pytest.raises(Refusal) as refused:
        registry.check_digest(digest)
    assert (refused.value.code, refused.value.field) == ("unknown_package", "rollback")


def test_its_record_and_audit_outlive_the_retention(team):
    team.register()
    done = team.run()
    team.clock.advance("400 days")
    team.office.clean_up()
    assert team.engine.job(done.id).status == "succeeded"
    assert team.audits(done.id)


# Staging


def test_only_a_staging_table_of_ours_is_dropped(team, dsn):
    with pytest.raises(ValueError, match="trees"):
        drop_staging(dsn, "trees")


def test_a_crash_of_our_own_database_after_the_targets_commit_is_read_back(team, monkeypatch):
    team.register()
    real, away = registry.add_audit, []

    def unheard(*arguments, **more):
        if not away:
            away.append(1)
            raise DatabaseAway
        real(*arguments, **more)

    monkeypatch.setattr(registry, "add_audit", unheard)
    job = team.refresh()
    with pytest.raises(DatabaseAway):
        team.engine.work("work", job=job, until=lambda: 900.0)
    assert len(team.target()) == 100
    team.office.run(4)
    assert (team.engine.job(job).status, team.history()) == ("succeeded", [("INSERT", 100)])
