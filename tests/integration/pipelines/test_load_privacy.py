"""T28: canaries in payload, principal, key, SQL and exceptions are nowhere afterwards, however a load ended.

What a load has written into its store is data and stands there; that is the one table that isn't looked at.
"""

import base64
import hashlib
import json
import logging
from contextlib import suppress

import boto3
import psycopg
import pytest
from chalice import Chalice
from chalice.test import Client

from chalicelib import api, pipelines
from chalicelib.api import files
from chalicelib.cli import show
from chalicelib.db import DatabaseAway
from chalicelib.pipelines.load import steps
from chalicelib.security import create_token
from tests.integration.pipelines.conftest import BUCKET, Killed
from tests.integration.pipelines.loading import Owner, made, uploads

CANARY = "CANARY-7f3a"
PRINCIPAL = f"{CANARY}@example.org"
KEY = f"{CANARY}-key"


ENDS_ITSELF = """
create function ended() returns trigger language plpgsql security definer as $$
begin
    perform pg_terminate_backend(pg_backend_pid());
    return new;
end $$;
create function ending() returns event_trigger language plpgsql as $$
declare
    made text := (select object_identity from pg_event_trigger_ddl_commands() where object_type = 'table');
begin
    if made ~ '^staging.job_' then
        execute format('create trigger ended before insert on %s for each row execute function ended()', made);
    end if;
end $$;
create event trigger ending on ddl_command_end when tag in ('CREATE TABLE') execute function ending();
"""
"""A connection that ends while it copies a row into a staging table."""


@pytest.fixture
def http(office, monkeypatch):
    """The API over the office's own database; a token whose principal is a canary."""
    monkeypatch.setenv("LEASEWAY_FILES_ACCESS_KEY_ID", "signer")
    monkeypatch.setenv("LEASEWAY_FILES_SECRET_ACCESS_KEY", f"{CANARY}-secret")
    office.point()
    files.store.cache_clear()
    app = Chalice(app_name="leaseway-test")
    api.register(app)
    context = pipelines.Context(steps.context().settings, office.db, office.engine)
    monkeypatch.setattr(pipelines, "context", lambda: context)
    made(office)
    token = create_token(office.db, PRINCIPAL, "operator")
    client = Client(app).http

    def ask(method, path, body=b"", media_type="application/json", **headers):
        given = {"authorization": f"Bearer {token}", "content-type": media_type, "idempotency-key": KEY, **headers}
        return client.request(method, path, headers=given, body=body)

    yield ask
    files.store.cache_clear()


def raising(error):
    def step(*_args, **_kwargs):
        raise error

    return step


def running_sql(tx, *_args):
    """PostgreSQL's message quotes the value, and the statement has it in its text."""
    return tx.run(f"select '{CANARY}'::int")


ENDS = {
    "loaded": None,
    "an exception": ("_fill", raising(RuntimeError(CANARY))),
    "an error of the database": ("_merged", raising(psycopg.errors.UniqueViolation(f"Key (id)=({CANARY})"))),
    "a statement that fails": ("_merged", running_sql),
    "an error that passes": ("_merged", raising(psycopg.errors.DeadlockDetected(f"while {CANARY}"))),
    "a worker that dies": ("_write", raising(Killed(CANARY))),
    "an upload that doesn't fit": None,
    "an upload that can't be read": None,
    "an upload without a header": None,
    "cancelled": None,
    "its deadline": None,
}
UPLOADED = {
    "an upload that doesn't fit": f"id,Art\n{CANARY},{CANARY}\n",
    "an upload that can't be read": f'id,Art\n1,"{CANARY}\n',
    "an upload without a header": f"1,{CANARY}\n2,{CANARY}\n",
}


@pytest.mark.parametrize("end", ENDS)
def test_T28_nothing_of_a_load_is_left_anywhere_but_in_its_store(
    office, http, monkeypatch, admin_database_dsn, capsys, caplog, end
):
    said = []
    with caplog.at_level(logging.INFO):
        if end in UPLOADED:
            job = uploaded(office, http, UPLOADED[end])
        else:
            rows = [{"id": 1, "Art": CANARY}]
            answered = http("POST", "/datasets/trees/loads", json.dumps(rows).encode())
            assert answered.status_code == 202, answered.body
            said.append(answered.body.decode())
            job = json.loads(answered.body)["id"]
        if end == "cancelled":
            office.engine.cancel(job)
        if end == "its deadline":
            office.clock.advance("31 hours")
        if ENDS[end]:
            monkeypatch.setattr(steps, *ENDS[end])
        office.run(30)
        said += [
            http("GET", path).body.decode()
            for path in (
                f"/loads/{job}",
                f"/internal/jobs/{job}",
                "/internal/jobs",
                "/internal/failures",
                "/docs",
                "/datasets/trees/status",
            )
        ]
        status = json.loads(http("GET", f"/loads/{job}").body)
        assert status["status"] == ("succeeded" if end == "loaded" else "failed"), status
        show.as_json(status)
    printed = capsys.readouterr()

    assert office.db.run("select id from engine.job where request is not null") == []
    assert uploads(office) == []
    for words in (
        everything(admin_database_dsn),
        *said,
        printed.out,
        printed.err,
        caplog.text,
        str(office.queues.sent),
    ):
        assert CANARY not in words
    assert BUCKET not in "".join(said)


def uploaded(office, http, content: str) -> str:
    made = json.loads(http("POST", "/datasets/trees/loads/uploads", json.dumps({"bytes": len(content)}).encode()).body)
    boto3.client("s3").put_object(Bucket=BUCKET, Key=f"uploads/{made['id']}", Body=content.encode())
    answered = http("POST", f"/datasets/trees/loads?upload={made['id']}&format=csv", media_type="")
    assert answered.status_code == 202, answered.body
    return str(json.loads(answered.body)["id"])


def test_T28_the_sha256_of_an_uploaded_file_is_in_no_row(office, http, admin_database_dsn):
    """Who knows what a small file may hold could find out by it what it did hold."""
    content = b"id,Art\n1,x\n"
    told = hashlib.sha256(content)
    announced = json.dumps({"bytes": len(content), "sha256": told.hexdigest()}).encode()
    upload = json.loads(http("POST", "/datasets/trees/loads/uploads", announced).body)["id"]
    assert http("POST", f"/datasets/trees/loads?upload={upload}&format=csv", media_type="").status_code == 202

    words = everything(admin_database_dsn)
    assert upload in words
    assert told.hexdigest()[:12] not in words.replace("-", "")
    assert base64.b64encode(told.digest()).decode() not in words


def everything(dsn: str, but: str = "access.token") -> str:
    """Every row of every table but the store's and the token's own, whose principal is its own; and one more."""
    with psycopg.connect(dsn) as admin:
        tables = admin.execute(
            "select oid::regclass::text from pg_class where relkind = 'r' and relnamespace::regnamespace::text"
            " in ('engine', 'dataset', 'access', 'refresh', 'staging', 'public') and oid <> all (%s::regclass[])",
            [["access.token", but]],
        ).fetchall()
        return "\n".join(str(row) for (table,) in tables for row in admin.execute(f"select t::text from {table} as t"))


def test_T28_a_connection_that_ends_during_a_copy_leaves_no_value_in_postgresqls_log(office, team, postgresql):
    if postgresql is None:
        pytest.skip("the log of a server that DATABASE_URL names is out of reach")
    made(office)
    log = postgresql.folder / "postgresql.log"
    before = log.stat().st_size
    team.admin.execute(ENDS_ITSELF)
    try:
        Owner(office).load([{"id": n, "Art": CANARY} for n in range(9)])
        with suppress(DatabaseAway):
            office.work()
    finally:
        team.admin.execute("drop event trigger ending; drop function ending, ended cascade")
    said = log.read_bytes()[before:].decode()

    assert "terminating connection" in said
    assert CANARY not in said


def test_T28_an_operators_name_stands_in_the_record_of_his_acts_and_nowhere_else(
    office, http, admin_database_dsn, capsys, caplog
):
    with caplog.at_level(logging.INFO):
        job = json.loads(http("POST", "/datasets/trees/loads", b'[{"id": 1, "Art": "x"}]').body)["id"]
        said = [
            http(method, path).body.decode()
            for method, path in (
                ("POST", f"/internal/jobs/{job}/cancel"),
                ("POST", f"/internal/failures/{job}/requeue"),
                ("GET", f"/internal/failures/{job}"),
                ("DELETE", f"/internal/failures/{job}"),
                ("DELETE", "/internal/refresh"),
            )
        ]
    printed = capsys.readouterr()

    acts = office.db.run("select * from access.act order by at, act")
    assert sorted((act["act"], act.pop("principal")) for act in acts) == [
        ("cancel", PRINCIPAL),
        ("purge", PRINCIPAL),
        ("refresh_disable", PRINCIPAL),
    ]
    for words in (
        str(acts),
        everything(admin_database_dsn, "access.act"),
        *said,
        printed.out,
        printed.err,
        caplog.text,
    ):
        assert CANARY not in words


@pytest.mark.parametrize("rows", [[{"id": CANARY, "Art": "x"}], [{"id": 1, CANARY: "x"}], [{"id": 1}]])
def test_T28_rows_that_are_refused_are_told_to_their_sender_and_kept_nowhere(
    http, admin_database_dsn, capsys, caplog, rows
):
    with caplog.at_level(logging.INFO):
        answered = http("POST", "/datasets/trees/loads", json.dumps(rows).encode())
    printed = capsys.readouterr()

    assert answered.status_code == 422
    assert (CANARY in answered.body.decode()) == (CANARY in str(rows))
    assert CANARY not in everything(admin_database_dsn) + printed.out + printed.err + caplog.text


def test_T28_the_owner_and_his_key_stand_in_rows_only_as_keyed_hashes(office, http):
    http("POST", "/datasets/trees/loads", b'[{"id": 1, "Art": "x"}]')

    [row] = office.db.run("select subject, conflict_key from engine.job")
    assert row["subject"].keys() == {"dataset", "definition", "owner", "key"}
    assert row["conflict_key"] == f"load:{row['subject']['key']}"
    assert len(row["subject"]["owner"]) == len(row["subject"]["key"]) == 64
