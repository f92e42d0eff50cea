"""Idempotency-Key over HTTP: the same request sent twice is one, and the key itself is kept nowhere."""

import json
import logging
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier
from uuid import UUID, uuid4

import psycopg
import pytest
from chalice.local import LambdaEventConverter

from chalicelib import pipelines
from chalicelib.db import Database
from chalicelib.engine import Engine, Idempotency
from chalicelib.security import create_token, keyed_hash

from .seeding import call, define, fail, problem, publish, register_source, tokens, withdraw, written

PUBLICATIONS = "/datasets/flights/publications"
KEY = "CANARY-8e03978e-40d5-43e8-bc93-6894a57f9324"


@pytest.fixture
def ask(http, database):
    """Requests of the publisher."""
    register_source(database)
    define(database)
    token = tokens(database)["publisher"]

    def asking(method, path, body=None, token=token, **headers):
        return call(http, method, path, token, body, **headers)

    return asking


def test_the_same_key_is_the_same_publication_even_when_it_has_ended(ask, engine, clock):
    first = ask("POST", PUBLICATIONS, {}, idempotency_key=KEY)
    job = json.loads(first.body)["id"]
    again = ask("POST", PUBLICATIONS, b" ", idempotency_key=KEY)
    assert (again.status_code, again.body) == (202, first.body)

    engine.claim("work", job=UUID(job), ask=uuid4(), lease=timedelta(seconds=60)).fail("source_denied", {})
    ended = ask("POST", PUBLICATIONS, idempotency_key=KEY)
    assert ended.status_code == 202
    assert ended.headers["Location"] == first.headers["Location"]
    assert json.loads(ended.body)["failure"]["code"] == "source_denied"
    assert "Retry-After" not in ended.headers

    assert json.loads(ask("POST", PUBLICATIONS).body)["id"] != job
    clock.advance("7 days")
    assert json.loads(ask("POST", PUBLICATIONS, idempotency_key=KEY).body)["id"] != job


def test_without_a_key_a_finished_publication_is_followed_by_another(ask, database, engine, clock):
    first = publish(database, engine, clock)
    assert json.loads(ask("POST", PUBLICATIONS).body)["id"] != str(first)


def test_something_else_under_the_same_key_is_refused(ask, database):
    ask("POST", PUBLICATIONS, idempotency_key=KEY)
    before = written(database)

    refused = problem(ask("POST", f"{PUBLICATIONS}?accept_drop=true", idempotency_key=KEY), 409, "idempotency_mismatch")

    assert refused["field"] == "Idempotency-Key"
    assert "new key" in refused["detail"]
    assert written(database) == before


def test_a_key_is_its_principals_and_its_addresss_own(ask, database):
    define(database, "flatlands")
    other = create_token(database, "somebody else", "publisher")
    jobs = [
        json.loads(ask("POST", PUBLICATIONS, idempotency_key=KEY).body)["id"],
        json.loads(ask("POST", "/datasets/flatlands/publications", idempotency_key=KEY).body)["id"],
    ]
    theirs = ask("POST", f"{PUBLICATIONS}?accept_drop=true", token=other, idempotency_key=KEY)

    assert len(set(jobs)) == 2
    assert theirs.status_code == 202  # no mismatch: it is another principal's
    assert database.one("select count(*) as n from engine.idempotency")["n"] == 3


def test_a_withdrawal_takes_a_key_too(ask, database, engine, clock):
    publish(database, engine, clock)
    first = ask("DELETE", "/datasets/flights/versions/1", idempotency_key=KEY)
    fail_location = first.headers["Location"]
    job = UUID(fail_location.rpartition("/")[2])
    engine.claim("work", job=job, ask=uuid4(), lease=timedelta(seconds=60)).fail("storage_refused", {})

    assert ask("DELETE", "/datasets/flights/versions/1", idempotency_key=KEY).headers["Location"] == fail_location
    done = withdraw(database, engine)
    assert ask("DELETE", "/datasets/flights/versions/1").headers["Location"].endswith(str(done))


def test_what_was_refused_leaves_its_key_free(ask, database, engine, clock):
    busy = publish(database, engine, clock)
    job = json.loads(ask("DELETE", "/datasets/flights/versions/1").body)["id"]
    problem(ask("POST", PUBLICATIONS, idempotency_key=KEY), 409, "subject_busy")
    assert database.run("select 1 from engine.idempotency") == []
    engine.cancel(UUID(job))

    accepted = ask("POST", PUBLICATIONS, idempotency_key=KEY)
    assert accepted.status_code == 202
    assert json.loads(accepted.body)["id"] not in (job, str(busy))


@pytest.mark.parametrize("key", ["", " ", "two words", "ü", "a\tb", "a\x7f", "x" * 256])
def test_a_key_that_is_none_is_refused(ask, database, key):
    before = written(database)
    problem(ask("POST", PUBLICATIONS, idempotency_key=key), 400, "bad_request", "Idempotency-Key")
    assert written(database) == before


def test_two_keys_are_none(ask, database, monkeypatch):
    """The client's events lack what API Gateway adds: each header with all its values."""
    create = LambdaEventConverter.create_lambda_event
    given = ["first", KEY]

    def as_the_gateway(*args, **kwargs):
        return create(*args, **kwargs) | {"multiValueHeaders": {"Idempotency-Key": given}}

    monkeypatch.setattr(LambdaEventConverter, "create_lambda_event", as_the_gateway)
    before = written(database)
    problem(ask("POST", PUBLICATIONS, idempotency_key=KEY), 400, "bad_request", "Idempotency-Key")
    assert written(database) == before

    del given[0]
    assert ask("POST", PUBLICATIONS, idempotency_key=KEY).status_code == 202


@pytest.mark.parametrize("key", ["!", "~" * 255, '"8e03978e-40d5-43e8-bc93-6894a57f9324"'])
def test_any_visible_ascii_is_a_key(ask, key):
    first, again = (ask("POST", PUBLICATIONS, idempotency_key=key) for _ in range(2))
    assert (first.status_code, again.status_code, again.body) == (202, 202, first.body)


def test_callers_that_race_with_one_key_get_one_publication(engine, database, dsn, queues):
    register_source(database)
    define(database)
    publications, callers = [], 6
    key = Idempotency(
        principal=b"p", route=f"POST {PUBLICATIONS}", key=keyed_hash("idempotency-key", KEY), body=b"nothing"
    )
    ready = Barrier(callers)

    def asking(_):
        db = Database(dsn)
        own = Engine(db, pipelines.PIPELINES, engine.settings, queues)
        ready.wait()
        try:
            return pipelines.publish(own, "flights", key=key).id
        finally:
            db.close()

    with ThreadPoolExecutor(callers) as pool:
        publications = set(pool.map(asking, range(callers)))
    assert len(publications) == 1
    assert [job.id for job in engine.jobs()] == list(publications)


def test_the_raw_key_and_the_principal_are_kept_and_said_nowhere(ask, database, admin_database_dsn, capsys, caplog):
    with caplog.at_level(logging.INFO):
        answers = [
            ask("POST", PUBLICATIONS, idempotency_key=KEY),
            ask("POST", f"{PUBLICATIONS}?accept_drop=true", idempotency_key=KEY),
            ask("POST", PUBLICATIONS, idempotency_key=KEY + " " + KEY),
        ]
        fail(database, pipelines.context().engine)
    assert [answer.status_code for answer in answers] == [202, 409, 400]
    with psycopg.connect(admin_database_dsn) as admin:
        tables = admin.execute(
            "select oid::regclass::text from pg_class where relkind = 'r'"
            " and relnamespace::regnamespace::text in ('engine', 'dataset', 'access')"
        ).fetchall()
        rows = {
            table: " ".join(str(row) for row in admin.execute(f"select t::text from {table} as t"))
            for (table,) in tables
        }
    assert rows["engine.idempotency"]
    raw = (KEY, KEY.encode().hex(), "CANARY")
    said = capsys.readouterr().out + caplog.text + "".join(answer.body.decode() for answer in answers)
    assert not [canary for canary in raw for text in (*rows.values(), said) if canary in text]
    assert "publisher@" not in " ".join(text for table, text in rows.items() if table != "access.token")
