"""Rows that their owner pushes: in the store all of them or none, once, and published from there."""

import json
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from itertools import chain
from uuid import UUID

import boto3
import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chalicelib import pipelines
from chalicelib.datasets import registry
from chalicelib.datasets.store import TYPES
from chalicelib.db import DatabaseAway
from chalicelib.engine import Leased, Refusal, SubjectBusy
from chalicelib.exports.errors import StorageRefused
from chalicelib.exports.files import Dialect
from chalicelib.exports.storage import Store
from chalicelib.pipelines.load import steps, upload_key
from chalicelib.pipelines.load.rows import TAKERS, Unfit
from tests.integration.pipelines.conftest import BUCKET, CLOSED, Killed
from tests.integration.pipelines.loading import COLUMNS, CSV, DIALECT, Owner, made, staging_tables, uploads


@pytest.fixture
def owner(office) -> Owner:
    return made(office)


def failed(office, job):
    failure = office.engine.status(job)
    return failure.code, failure.details


# What a load does


def test_rows_are_in_the_store_and_a_publication_exports_them(office, owner):
    job = owner.load(
        [{"id": 2, "Art": "Linde"}, {"id": 1, "Art": "Bergahorn", "height": "12.50", "planted": "1987-04-01"}]
    )
    office.work()

    assert office.engine.status(job).state == "LOADED"
    assert owner.done(job) == (2, 2, 0, 0)
    published = office.publish()
    office.run(2)
    assert office.engine.status(published).state == "PUBLISHED"
    [version] = registry.versions(office.db, "trees")
    csv = next(file for file in version["files"] if file["format"] == "csv")
    assert office.content(csv["key"]).decode() == (
        "id,species,height,planted\n1,Bergahorn,12.50,1987-04-01\n2,Linde,,\n"
    )
    assert staging_tables(office) == []


def test_an_upsert_changes_what_differs_and_a_replace_is_the_whole_content(office, owner):
    first = owner.load([{"id": n, "Art": f"tree {n}", "height": 1} for n in (1, 2, 3)])
    second = owner.load([{"id": 1, "Art": "tree 1", "height": 1}, {"id": 2, "Art": "oak"}, {"id": 4, "Art": "new"}])
    third = owner.load([{"id": 1, "Art": "tree 1", "height": "1.0"}, {"id": 5, "Art": "last"}], mode="replace")
    office.work()

    assert owner.done(first) == (3, 3, 0, 0)
    assert owner.done(second) == (3, 1, 1, 0)  # one was there as it is
    assert owner.done(third) == (2, 1, 1, 3)  # the digits of a number count
    assert [row[:2] for row in owner.rows()] == [(1, "tree 1"), (5, "last")]


def test_a_key_alone_is_a_row_too(office, owner):
    owner.define(columns=COLUMNS[:1])
    owner.load("id\n1\n2\n")
    again = owner.load("id\n2\n3\n")
    office.work()

    assert owner.done(again) == (2, 1, 0, 0)


def test_no_row_is_there_before_its_record_is(office, owner, dsn, monkeypatch):
    seen = []
    finish = steps.Leased.finish

    def look(job, tx, **kwargs):
        with psycopg.connect(dsn) as other:
            seen.append(
                other.execute("select to_regclass('store.trees'), (select count(*) from dataset.load)").fetchone()
            )
        finish(job, tx, **kwargs)

    monkeypatch.setattr(steps.Leased, "finish", look)
    owner.load([{"id": 1, "Art": "x"}])
    office.work()

    assert seen == [(None, 0)]
    assert len(owner.rows()) == 1


def test_what_a_load_did_is_known_for_thirty_days_and_its_rows_stay(office, owner):
    job = owner.load([{"id": 1, "Art": "x"}])
    office.work()
    office.clock.advance("29 days")
    office.clean_up()
    assert owner.done(job) == (1, 1, 0, 0)
    office.clock.advance("1 day 1 s")
    office.clean_up()

    assert owner.done(job) is office.engine.status(job) is None
    assert len(owner.rows()) == 1


def test_the_same_load_sent_again_is_one_and_its_payload_is_gone(office, owner):
    job = owner.load([{"id": 1, "Art": "x"}], key="a")
    assert office.db.run("select request->>'body' as body from engine.job") == [{"body": '[{"id": 1, "Art": "x"}]'}]
    office.work()
    owner.define(columns=COLUMNS[:2])  # it is answered whatever is taken by now

    assert owner.load([{"id": 1, "Art": "x", "height": 1}], key="a") == job
    assert office.db.run("select request, subject->>'definition' as d from engine.job") == [{"request": None, "d": "2"}]


def test_an_unfinished_load_of_the_same_key_is_in_the_way_when_its_time_is_over(office, owner):
    owner.load([{"id": 1, "Art": "x"}], key="a")
    office.clock.advance("8 days")
    with pytest.raises(SubjectBusy):
        owner.load([{"id": 1, "Art": "x"}], key="a")


def test_a_load_is_not_requeued_for_its_payload_is_erased(office, owner):
    job = owner.load([{"id": 1, "Art": "x"}])
    office.engine.cancel(job)

    with pytest.raises(Refusal) as refused:
        office.engine.requeue(job)
    assert refused.value.code == "payload_erased"


# What the store is


def test_new_columns_widen_the_store_and_those_that_are_gone_keep_their_values(office, owner):
    owner.load([{"id": 1, "Art": "x", "height": 2}])
    office.work()
    owner.define(
        columns=[COLUMNS[0], COLUMNS[2] | {"required": True}, {"name": "100 %", "type": "json"}],
    )
    job = owner.load([{"id": 1, "height": 2, "100 %": {"a": [1.50]}}, {"id": 3, "height": 4, "100 %": "b"}])
    office.work()

    assert owner.done(job) == (2, 1, 1, 0)
    described = office.db.run(
        "select column_name, is_nullable from information_schema.columns where table_schema = 'store'"
        " order by ordinal_position"
    )
    assert {row["column_name"]: row["is_nullable"] for row in described} == {
        "id": "NO",
        "Art": "YES",
        "height": "NO",
        "planted": "YES",
        "100 %": "YES",
    }
    assert [row[1] for row in owner.rows()] == ["x", None]
    owner.define(columns=COLUMNS)  # back again
    with pytest.raises(Refusal, match="mode=replace"):  # the third has no Art
        owner.load([{"id": 4, "Art": "y"}])


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"columns": [*COLUMNS[:2], {"name": "height", "type": "integer"}]}, "height"),
        ({"key": ["species"]}, "Art"),
        ({"key": ["id", "species"]}, "Art"),
        ({"columns": [*COLUMNS, {"name": "age", "type": "integer", "required": True}]}, "age"),
        ({"columns": [*COLUMNS[:3], COLUMNS[3] | {"required": True}]}, "planted"),
        ({"columns": [{"name": "nr", "type": "integer"}, *COLUMNS[1:]], "key": ["nr"]}, "nr"),
    ],
)
def test_what_is_more_than_new_columns_needs_a_replace(office, owner, changes, column):
    owner.load([{"id": 1, "Art": "x", "height": 2}, {"id": 2, "Art": "y"}])
    office.work()
    owner.define(**changes)
    whole = {"id": 1, "nr": 1, "Art": "z", "height": 3, "age": 4, "planted": "2024-02-29"}
    names = {c.get("from", c["name"]) for c in changes.get("columns", COLUMNS)}
    row = {name: value for name, value in whole.items() if name in names}

    with pytest.raises(Refusal) as refused:
        owner.load([row])
    assert (refused.value.code, refused.value.field) == ("store_mismatch", column)
    job = owner.load([row], mode="replace")
    office.work()
    assert owner.done(job) == (1, 1, 0, 2)
    assert office.db.run("select count(*) as rows from store.trees") == [{"rows": 1}]


def test_a_store_that_an_earlier_load_made_otherwise_fails_the_later_one(office, owner):
    owner.load([{"id": 1, "Art": "x"}])
    owner.define(columns=[COLUMNS[0], COLUMNS[1] | {"type": "json"}])
    job = owner.load([{"id": 1, "Art": {}}])
    office.work()

    assert failed(office, job) == ("store_mismatch", {"step": "LOAD", "column": "Art"})
    assert [row[:2] for row in owner.rows()] == [(1, "x")]


def test_what_waits_in_line_is_accepted_for_the_store_that_the_loads_before_it_make(office, owner):
    owner.load([{"id": 1, "Art": "x"}])
    office.work()
    owner.define(columns=[COLUMNS[0], COLUMNS[1] | {"type": "json"}])
    replaced = owner.load([{"id": 1, "Art": {}}], mode="replace")
    job = owner.load([{"id": 2, "Art": []}])  # behind the one that makes the store anew
    office.work()

    assert owner.done(replaced) == (1, 1, 0, 1)
    assert owner.done(job) == (1, 1, 0, 0)
    owner.define()
    with pytest.raises(Refusal, match="mode=replace"):  # nothing is before it
        owner.load([{"id": 3, "Art": "y"}])


def test_a_dataset_without_a_key_takes_none(office, owner):
    office.define()
    with pytest.raises(Refusal) as refused:
        owner.load([{"id": 1, "Art": "x"}])
    assert (refused.value.code, refused.value.field) == ("takes_no_loads", "key")
    with pytest.raises(Refusal):
        owner.upload(None)


def test_a_column_of_a_type_that_no_store_has_takes_none(office, owner, monkeypatch):
    monkeypatch.delitem(steps.TYPES, "decimal")
    with pytest.raises(Refusal) as refused:
        owner.load([{"id": 1, "Art": "x"}])
    assert (refused.value.code, refused.value.field) == ("takes_no_loads", "height")


def test_a_dataset_that_is_not_there_takes_none(office, owner):
    office.db.run("delete from dataset.definition")
    with pytest.raises(Refusal) as refused:
        owner.load([{"id": 1, "Art": "x"}])
    assert refused.value.code == "not_found"


def test_a_deleted_dataset_takes_its_store_along_and_fails_what_was_to_be_loaded(office, owner):
    owner.load([{"id": 1, "Art": "x"}])
    office.work()
    job = owner.load([{"id": 2, "Art": "x"}])
    pipelines.delete_dataset(office.engine, "trees")
    office.work()

    assert failed(office, job)[0] == "dataset_deleted"
    assert office.db.run("select to_regclass('store.trees') as store") == [{"store": None}]
    with pytest.raises(Refusal) as refused:
        owner.load([{"id": 3, "Art": "x"}])
    assert refused.value.code == "gone"


def test_a_publication_before_the_first_load_fails_and_says_what_is_missing(office, owner):
    job = office.publish()
    office.run(2)

    assert failed(office, job)[0] == "store_empty"


# Uploads


def test_an_upload_in_an_offices_dialect_is_loaded_and_then_deleted(office, owner):
    upload = owner.upload(CSV.encode("cp1252"))
    job = owner.load(upload=upload, **DIALECT)
    office.work()

    assert owner.done(job) == (2, 2, 0, 0)
    assert [str(value) for value in owner.rows()[0]] == ["1", "Bergahorn", "12.50", "1987-04-01"]
    assert owner.rows()[1][1] == "Höhe ist unbekannt"
    assert uploads(office) == [upload_key(upload)]
    office.run(16)
    assert uploads(office) == []
    office.run(30)
    assert office.db.run("select id from dataset.upload union all select job_id from engine.ledger") == []


def test_the_ledger_has_an_upload_from_the_moment_its_job_owns_it(office, owner):
    upload = owner.upload(b"id,Art\n1,x\n")
    left = office.db.run("select job_id, status from engine.ledger")
    job = owner.load(upload=upload)

    assert left == [{"job_id": upload, "status": "garbage"}]
    assert office.db.run("select job_id, status from engine.ledger") == [{"job_id": job, "status": "pending"}]
    assert office.clean_up() == {}


def test_an_upload_that_nobody_loads_is_removed_after_a_day(office, owner):
    upload = owner.upload(b"id,Art\n1,x\n")
    office.clock.advance("24 hours")
    office.clean_up()
    assert uploads(office) == [upload_key(upload)]
    with pytest.raises(Refusal) as refused:  # already too late, although it is still there
        owner.load(upload=upload)
    assert refused.value.code == "unknown_upload"
    office.clock.advance("11 min")
    office.clean_up()

    assert uploads(office) == []
    assert office.db.run("select id from dataset.upload") == []


def test_an_upload_is_its_owners_and_good_for_one_load(office, owner):
    upload = owner.upload(b"id,Art\n1,x\n")
    with pytest.raises(Refusal) as refused:
        Owner(office, "somebody@example.org").load(upload=upload)
    assert (refused.value.code, refused.value.field) == ("unknown_upload", "upload")
    owner.load(upload=upload)
    with pytest.raises(Refusal):
        owner.load(upload=upload)
    assert office.db.run("select count(*) as jobs from engine.job") == [{"jobs": 1}]


def test_an_upload_that_was_removed_under_a_load_is_not_taken(office, owner):
    upload = owner.upload(b"id,Art\n1,x\n")
    office.db.run("delete from engine.ledger")
    with pytest.raises(Refusal):
        owner.load(upload=upload)


def bad(row, column, reason):
    return {"row": row, "column": column, "reason": reason}


@pytest.mark.parametrize(
    ("content", "code", "details"),
    [
        (None, "upload_missing", {}),
        (b"", "upload_changed", {}),  # none is announced that holds nothing
        (b"id,Art\n", "no_rows", {}),
        (b"id,Art\n1,\xff\n", "unreadable_rows", {"record": 2, "column": 3}),
        (b"id,Art\n1,x,y\n", "unreadable_rows", {"record": 2, "column": 3}),
        (b"id,Art,CANARY\n1,x,y\n", "unknown_column", {"column": 3}),
        (b"id,height\n1,2\n", "missing_column", {"column": "Art"}),
        (b'id,Art\n1,"CANARY\n', "unreadable_rows", {"record": 2, "column": 2}),
        (
            b"id,Art\n1,x\nCANARY,y\n1,CANARY\n2,\n",
            "invalid_rows",
            {"records": 3, "rows": [bad(2, "id", "not_integer"), bad(3, "id", "key_twice"), bad(4, "Art", "missing")]},
        ),
        (
            b"id,Art\n" + b"CANARY,x\n" * 6000,
            "invalid_rows",
            {"records": 6000, "rows": [bad(n, "id", "not_integer") for n in range(1, 101)]},
        ),
    ],
)
def test_an_upload_that_does_not_fit_fails_at_once_and_nothing_of_it_is_told(office, owner, content, code, details):
    job = owner.load(upload=owner.upload(content))
    office.work()

    assert failed(office, job) == (code, {"step": "LOAD"} | details)
    assert office.engine.failure(job).attempts == 1
    assert office.db.run("select to_regclass('store.trees') as store") == [{"store": None}]
    assert staging_tables(office) == []
    office.run(16)
    assert uploads(office) == []


@pytest.mark.parametrize(
    ("again", "becomes"), [(b"id,Art\n2,y\n", [(2, "y")]), (b"id,Art\n2,y\n3,z\n", None), (b"id,Art\n", None)]
)
def test_what_is_put_after_the_accept_is_loaded_if_it_is_as_long_as_was_announced(office, owner, again, becomes):
    job = owner.load(upload=owner.upload(b"id,Art\n1,x\n"))
    boto3.client("s3").put_object(Bucket=BUCKET, Key=uploads(office)[0], Body=again)
    office.work()

    if becomes:
        assert [row[:2] for row in owner.rows()] == becomes
    else:
        assert failed(office, job) == ("upload_changed", {"step": "LOAD"})
        assert office.db.run("select to_regclass('store.trees') as store") == [{"store": None}]


def test_an_upload_that_is_put_anew_while_it_is_read_is_loaded_as_it_was(office, owner, monkeypatch):
    monkeypatch.setattr("chalicelib.exports.storage.PART", 10)
    job = owner.load(upload=owner.upload(b"id,Art\n1,first\n2,first\n"))
    read = steps.Records

    def put_anew(chunks, *more):
        first = next(chunks)
        boto3.client("s3").put_object(Bucket=BUCKET, Key=uploads(office)[0], Body=b"id,Art\n1,other\n2,other\n")
        return read(chain([first], chunks), *more)

    monkeypatch.setattr(steps, "Records", put_anew)
    office.work()

    assert owner.done(job) == (2, 2, 0, 0)
    assert {row[1] for row in owner.rows()} == {"first"}


def test_json_lines_have_the_record_and_the_place_of_an_unknown_column(office, owner):
    job = owner.load(
        upload=owner.upload(b'{"id": 1, "Art": "x"}\n{"id": 2, "Art": "x", "CANARY": 3}\n'), format="jsonl"
    )
    office.work()

    assert failed(office, job) == ("unknown_column", {"step": "LOAD", "record": 2, "column": 3})


def test_many_rows_go_by_batches(office, owner, monkeypatch):
    monkeypatch.setattr(steps, "BATCH", 70)
    content = "id,Art\n" + "".join(f"{n},tree {n}\n" for n in range(1, 1001))
    job = owner.load(upload=owner.upload(content.encode()))
    office.work()

    assert owner.done(job) == (1000, 1000, 0, 0)
    status = office.engine.status(job)
    assert (status.progress.records, status.progress.total) == (1000, 1000)


def test_object_storage_that_is_away_is_waited_for(office, owner, s3_url):
    job = owner.load(upload=owner.upload(b"id,Art\n1,x\n"))
    office.point(AWS_ENDPOINT_URL=CLOSED)
    office.run(40, clean_up=False)
    assert office.engine.status(job).waiting_for.code == "storage_unreachable"
    office.point(AWS_ENDPOINT_URL=s3_url)
    office.run(10)

    assert (office.engine.status(job).state, office.engine.status(job).attempts) == ("LOADED", 1)


@pytest.mark.parametrize("times", [2, 3])
def test_object_storage_that_refuses_is_tried_again_as_long_as_attempts_are_left(office, owner, monkeypatch, times):
    real, refused = Store.read, []

    def refuses(store, *what):
        if len(refused) < times:
            refused.append(1)
            raise StorageRefused(status=403)
        yield from real(store, *what)

    monkeypatch.setattr(Store, "read", refuses)
    job = owner.load(upload=owner.upload(b"id,Art\n1,x\n"))
    office.run(30)

    ended = office.engine.status(job)
    assert (len(refused), ended.attempts) == (times, 3)
    if times == 2:
        assert (ended.state, owner.done(job)) == ("LOADED", (1, 1, 0, 0))
    else:
        assert failed(office, job) == ("storage_refused", {"step": "LOAD", "status": 403})


def test_cleanup_comes_again_for_an_upload_while_storage_is_away(office, owner, s3_url):
    job = owner.load(upload=owner.upload(b"id,Art\n1,x\n"))
    office.work()
    office.point(AWS_ENDPOINT_URL=CLOSED)
    assert office.clean_up()["backed_off"] == 1
    office.point(AWS_ENDPOINT_URL=s3_url)
    office.run(60)

    assert office.engine.status(job).state == "LOADED"
    assert uploads(office) == []


# When something dies or is in the way


@pytest.mark.parametrize("place", ["_fill", "_write", "prepare_store", "_merged"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_dies_anywhere_leaves_nothing_and_the_next_one_loads_once(
    office, owner, monkeypatch, place, when
):
    alive = getattr(steps, place)
    deaths = []

    def die(*args, **kwargs):
        if deaths:
            return alive(*args, **kwargs)
        deaths.append(place)
        if when == "after":
            alive(*args, **kwargs)
        raise Killed

    monkeypatch.setattr(steps, place, die)
    monkeypatch.setattr(steps, "drop", lambda *_: None)  # a killed process drops nothing
    job = owner.load(upload=owner.upload(b"id,Art\n1,x\n2,y\n"))
    office.work()
    finished = place == "_write" and when == "after"
    assert (owner.done(job) is not None) == finished
    assert len(staging_tables(office)) == 1
    office.run(10)

    assert owner.done(job) == (2, 2, 0, 0)
    assert office.engine.status(job).attempts == (1 if finished else 2)
    office.run(40)
    assert (staging_tables(office), uploads(office)) == ([], [])


def test_a_worker_that_loses_its_claim_once_all_is_read_does_not_begin_to_write(office, owner, monkeypatch):
    real_require, real_prepare, lost, prepared = Leased.require, steps.prepare_store, [], []

    def is_recovered(job, seconds):
        real_require(job, seconds)
        if not lost:
            lost.append(job.claim_id)
            office.clock.advance("20 min")
            office.engine.recover()

    def prepare(*arguments, **more):
        prepared.append(1)
        return real_prepare(*arguments, **more)

    monkeypatch.setattr(Leased, "require", is_recovered)
    monkeypatch.setattr(steps, "prepare_store", prepare)
    job = owner.load([{"id": 1, "Art": "x"}])
    office.work()
    assert (len(lost), prepared, owner.done(job)) == (1, [], None)
    office.run(5)

    assert owner.done(job) == (1, 1, 0, 0)
    assert (office.engine.status(job).attempts, prepared) == (2, [1])


def test_a_database_that_goes_away_while_dropping_leaves_it_to_cleanup(office, owner, monkeypatch):
    def away(*_):
        raise DatabaseAway

    monkeypatch.setattr(steps, "drop", away)
    job = owner.load([{"id": 1, "Art": "x"}])
    office.work()
    assert owner.done(job) == (1, 1, 0, 0)
    assert len(staging_tables(office)) == 1
    office.run(20)

    assert staging_tables(office) == []


@pytest.mark.parametrize("mode", ["upsert", "replace"])
@pytest.mark.parametrize("left", [0, 1])
def test_rows_that_a_crash_of_the_server_took_are_staged_again(
    office, owner, monkeypatch, admin_database_dsn, mode, left
):
    """Found by chaos, seed 2: the load succeeded with no rows, and a replace would have emptied the store."""
    owner.load([{"id": 1, "Art": "x"}])
    office.work()
    fill, crashes = steps._fill, []

    def emptied(job, db, table, rows):
        count = fill(job, db, table, rows)
        if not crashes:
            crashes.append(table)
            with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
                admin.execute(f"delete from staging.{table} where c0 > {left}")
        return count

    monkeypatch.setattr(steps, "_fill", emptied)
    job = owner.load([{"id": 1, "Art": "y"}, {"id": 2, "Art": "z"}], mode=mode)
    office.work()
    status = office.engine.status(job)
    assert (status.waiting_for.code, status.attempts) == ("staging_mismatch", 1)
    assert [row[:2] for row in owner.rows()] == [(1, "x")]
    office.run(3)

    assert owner.done(job) == (2, 1, 1, 0)
    assert [row[:2] for row in owner.rows()] == [(1, "y"), (2, "z")]


def test_a_store_that_somebody_holds_is_waited_for(office, owner, admin_database_dsn):
    owner.load([{"id": 1, "Art": "x"}])
    office.work()
    job = owner.load([{"id": 2, "Art": "x"}])
    office.db.run("set lock_timeout = '50ms'")
    with psycopg.connect(admin_database_dsn) as somebody:
        somebody.execute("lock table store.trees in access exclusive mode")
        office.work()
        status = office.engine.status(job)
        assert (status.waiting_for.code, status.attempts) == ("store_busy", 1)
    office.run(3)

    assert owner.done(job) == (1, 1, 0, 0)


def test_a_statement_that_takes_too_long_is_tried_again_and_fails_with_its_code(office, owner, monkeypatch):
    def sleep(tx, *_):
        tx.run("set local statement_timeout = '10ms'")
        tx.run("select pg_sleep(5)")

    monkeypatch.setattr(steps, "_merged", sleep)
    job = owner.load([{"id": 1, "Art": "x"}])
    office.run(5)

    failure = office.engine.status(job)
    assert (failure.code, failure.attempts, failure.details["sqlstate"]) == ("load_timeout", 3, "57014")


def test_too_little_time_left_is_not_begun_with(office, owner):
    job = owner.load([{"id": 1, "Art": "x"}])
    left = iter([40.0, 35.0] + [9.0] * 20)
    office.engine.work("work", job=job, until=lambda: next(left))

    status = office.engine.status(job)
    assert (status.status, status.attempts) == ("queued", 1)
    assert office.engine.history(job)[-1]["details"]["code"] == "load_timeout"


def test_a_load_that_is_claimed_late_is_given_to_the_next_invocation_and_spends_nothing(office, owner):
    job = owner.load([{"id": 1, "Art": "x"}])
    late = iter([40.0] + [20.0] * 5)
    assert office.engine.work("work", job=job, until=lambda: next(late)).outcome == "waiting"
    assert office.engine.work("work", job=None, until=lambda: 40.0).job is None  # this one is nearly over
    office.clock.advance("20 s")
    late = iter([40.0] + [20.0] * 20)  # where no invocation is longer, it is done all the same
    assert office.engine.work("work", job=job, until=lambda: next(late)).outcome == "finished"
    assert office.engine.job(job).attempts == 1


def test_a_row_that_no_page_holds_is_refused_or_else_fails_with_a_code_that_says_so(office, owner):
    owner.define(columns=[COLUMNS[0], *({"name": f"c{n}", "type": "text"} for n in range(700))])
    whole = {"id": 1} | {f"c{n}": "2024-02-29T12:00:00Z" for n in range(700)}
    with pytest.raises(Unfit) as unfit:
        owner.load([{"id": 2, "c3": "x"}, whole])
    assert [vars(bad) for bad in unfit.value.bad] == [
        {"row": 2, "column": "c677", "reason": "row_too_wide", "value": None}
    ]
    job = owner.load([dict(list(whole.items())[:600])])  # compressed as well as can be, it would fit
    office.work()

    assert failed(office, job) == ("row_too_wide", {"step": "LOAD"})


def test_a_store_of_more_columns_than_there_can_be_is_made_anew_by_a_replace(office, owner, monkeypatch):
    owner.load([{"id": 1, "Art": "x"}])
    office.work()
    monkeypatch.setattr("chalicelib.datasets.store.MOST_COLUMNS", 5)
    owner.define(columns=[*COLUMNS[:2], {"name": "age", "type": "integer"}, {"name": "use", "type": "text"}])
    row = {"id": 1, "Art": "x", "age": 3, "use": "y"}
    with pytest.raises(Refusal) as refused:
        owner.load([row])
    assert (refused.value.code, refused.value.field) == ("store_mismatch", "age")
    job = owner.load([row], mode="replace")
    office.work()

    assert owner.done(job) == (1, 1, 0, 1)


def test_trouble_of_the_database_is_tried_again(office, owner, monkeypatch):
    merged = steps._merged
    troubles = []

    def deadlock(*args):
        if not troubles:
            troubles.append("deadlock")
            raise psycopg.errors.DeadlockDetected
        return merged(*args)

    monkeypatch.setattr(steps, "_merged", deadlock)
    job = owner.load([{"id": 1, "Art": "x"}])
    office.run(2)

    assert (owner.done(job), office.engine.status(job).attempts) == ((1, 1, 0, 0), 2)


def cancelled_unowned(office, owner, job):
    office.engine.cancel(job)


def cancelled_owned(office, owner, job):
    read = Store.read

    def cancelling(store, *what):
        office.engine.cancel(job)
        return read(store, *what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "read", cancelling)
        office.work()


def past_its_deadline(office, owner, job):
    office.engine.pause(hours=26)
    office.clock.advance("27 hours")
    office.engine.recover()
    office.clock.advance("26 hours")
    office.engine.recover()


def exhausted(office, owner, job):
    def die(*_):
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(steps, "_fill", die)
        office.run(12)


@pytest.mark.parametrize(
    ("end", "code"),
    [
        (cancelled_unowned, "cancelled"),
        (cancelled_owned, "cancelled"),
        (past_its_deadline, "deadline_exceeded"),
        (exhausted, "attempts_exhausted"),
    ],
)
def test_however_a_load_ends_its_payload_and_its_upload_are_gone(office, owner, end, code):
    job = owner.load(upload=owner.upload(b"id,Art\n1,x\n"))
    end(office, owner, job)

    assert failed(office, job)[0] == code
    assert office.db.run("select id from engine.job where request is not null") == []
    assert [row["status"] for row in office.db.run("select status from engine.ledger where kind = 'upload'")] in (
        ["garbage"],
        [],
    )
    office.run(16)
    assert uploads(office) == []
    assert office.db.run("select id from dataset.upload") == []


def test_rows_that_do_not_fit_refuse_the_load_and_leave_nothing(office, owner):
    with pytest.raises(Unfit) as unfit:
        owner.load([{"id": 1, "Art": "x"}, {"id": "CANARY"}])
    assert (unfit.value.code, [vars(bad) for bad in unfit.value.bad]) == (
        "invalid_rows",
        [{"row": 2, "column": "id", "reason": "not_integer", "value": "CANARY"}],
    )
    assert office.db.run("select id from engine.job") == office.db.run("select key from engine.idempotency") == []


def test_the_names_of_the_store_are_never_more_than_names(office, owner):
    evil = 'id"; drop table dataset.load; --%s'
    owner.define(columns=[{"name": evil, "type": "integer"}, COLUMNS[1]], key=[evil])
    job = owner.load([{evil: 1, "Art": json.dumps("x")}])
    office.work()

    assert owner.done(job) == (1, 1, 0, 0)


# Whatever is taken PostgreSQL takes too, as the same value: what its cast refuses would stand in its log

TIME = r"[0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,7})?)?"
DAY = r"[0-9]{4}-[01][0-9]-[0-3][0-9]"
NUMBER = r"-?[0-9]{1,25}(\.[0-9]{1,9})?([eE][+-]?[0-9]{1,3})?"
CELLS = {
    "text": st.text(max_size=5).filter(lambda cell: "\0" not in cell),
    "boolean": st.sampled_from(["true", "false", "True", "t", "1", ""]),
    "integer": st.integers(-(2**64), 2**64).map(str) | st.from_regex(r"[-+]?[0-9]{0,21}", fullmatch=True),
    "decimal": st.from_regex(NUMBER, fullmatch=True),
    "double": st.floats().map(repr) | st.from_regex(NUMBER, fullmatch=True),
    "date": st.from_regex(DAY, fullmatch=True),
    "time": st.from_regex(TIME, fullmatch=True),
    "timestamp": st.from_regex(f"{DAY}[T ]{TIME}", fullmatch=True),
    "timestamptz": st.from_regex(f"{DAY}[T ]{TIME}(Z|[+-][01][0-9](:?[0-9]{{2}})?(:[0-9]{{2}})?)", fullmatch=True),
    "uuid": st.uuids().map(str)
    | st.from_regex(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", fullmatch=True),
    "json": st.text('{}[]",:\\u0dc8 \t1-.eEnultrfas', max_size=9)
    | st.lists(st.floats() | st.text(max_size=3)).map(json.dumps),
    "binary": st.from_regex(r"[0-9a-fA-F]{0,9}", fullmatch=True),
}
EPOCH = datetime(1970, 1, 1)
MEANT = {
    "text": str,
    "boolean": "true".__eq__,
    "integer": int,
    "decimal": Decimal,
    "double": float,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": lambda cell: (datetime.fromisoformat(cell) - EPOCH.replace(tzinfo=UTC)) // timedelta(microseconds=1),
    "uuid": UUID,
    "json": str,
    "binary": bytes.fromhex,
}


@pytest.mark.parametrize("type_", TAKERS)
def test_whatever_is_taken_postgresql_takes_as_the_same_value(dsn, type_):
    take, meant = TAKERS[type_](Dialect()), MEANT[type_]
    # A timestamptz may lie in another year than Python has.
    read = {"timestamptz": "(extract(epoch from {0}) * 1000000)::bigint", "json": "{0}::text"}.get(type_, "{0}")

    @settings(max_examples=40, derandomize=True, database=None, deadline=None)
    @given(st.lists(CELLS[type_], min_size=10, max_size=20))
    def agree(cells):
        taken = {cell: value for cell in cells if (value := take(cell)) is not None}
        cast = read.format(f"c::{TYPES[type_]}")
        found = connection.execute(
            f"select {cast} from unnest(%s::text[]) with ordinality as t (c, n) order by n", [[*taken.values()]]
        )
        assert [value for (value,) in found] == [meant(cell) for cell in taken]

    with psycopg.connect(dsn, autocommit=True, options="-c role=leaseway_app -c timezone=UTC") as connection:
        agree()
