"""Refreshes over HTTP: an empty body, one at a time, only when enabled; answers without a word of the machinery."""

import json
from datetime import timedelta
from uuid import UUID, uuid4

import boto3
import psycopg
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from chalicelib.datasets import registry as datasets
from chalicelib.pipelines.refresh import registry
from chalicelib.pipelines.refresh.manifest import Manifest

from .seeding import call, problem, register_source, tokens, written

PACKAGE = "ab" * 32
CONTRACT = {
    "name": "flights",
    "source": "flights",
    "target": {"connection": "mart", "table": "mart.flights"},
    "columns": [{"name": "id", "type": "integer"}],
    "key": ["id"],
}
LATER = {
    **CONTRACT,
    "name": "months",
    "target": {"connection": "mart", "table": "mart.months"},
    "depends_on": ["flights"],
}


@pytest.fixture
def token(database):
    return tokens(database)["operator"]


@pytest.fixture
def registered(database):
    register_source(database)
    datasets.add_connection(database, "mart", "LEASEWAY_SECRET_MART")
    return register(database)


def register(database, *contracts):
    return registry.register(database, Manifest.parse({"contracts": list(contracts) or [CONTRACT, LATER]}))


@pytest.fixture
def enabled(database, registered):
    registry.enable(database, PACKAGE)


class Bucket:
    """S3 that answers a HEAD."""

    def __init__(self, status: int = 200):
        self.status = status
        self.asked: list[tuple[str, str]] = []

    def head_object(self, **asked):
        self.asked.append((asked["Bucket"], asked["Key"]))
        if self.status == 0:
            raise EndpointConnectionError(endpoint_url="https://s3.example.org")
        if self.status != 200:
            error = {"Error": {"Code": str(self.status)}, "ResponseMetadata": {"HTTPStatusCode": self.status}}
            raise ClientError(error, "HeadObject")
        return {"ContentLength": 1, "ETag": '"x"'}


@pytest.fixture
def bucket(monkeypatch):
    made = Bucket()
    monkeypatch.setattr(boto3, "client", lambda *arguments, **more: made)
    return made


def lease(engine, job):
    return engine.claim("work", job=job, ask=uuid4(), lease=timedelta(seconds=60))


def test_it_is_off_until_an_operator_names_a_package_to_go_back_to(http, database, registered, token, bucket):
    refused = problem(call(http, "POST", "/refreshes", token), 409, "not_enabled")
    assert "leaseway refresh enable" in refused["detail"]

    answered = call(http, "PUT", "/internal/refresh", token, {"rollback": PACKAGE})

    assert json.loads(answered.body) == {"enabled": True, "rollback": PACKAGE}
    assert bucket.asked == [("leaseway-deploy", f"{PACKAGE}.zip")]
    assert call(http, "POST", "/refreshes", token).status_code == 202
    assert call(http, "DELETE", "/internal/refresh", token).status_code == 204
    problem(call(http, "POST", "/refreshes", token), 409, "not_enabled")
    acts = database.run("select principal, act, target from access.act order by at")
    assert [(row["act"], row["target"]) for row in acts] == [
        ("refresh_enable", PACKAGE),
        ("refresh", None),
        ("refresh_disable", None),
    ]
    assert {row["principal"] for row in acts} == {"operator@example.org"}


@pytest.mark.parametrize(("status", "code"), [(404, "unknown_package"), (403, "unknown_package")])
def test_a_package_that_isnt_kept_enables_nothing(http, database, registered, token, bucket, status, code):
    bucket.status = status
    problem(call(http, "PUT", "/internal/refresh", token, {"rollback": PACKAGE}), 422, code, "rollback")
    assert registry.switch(database)["enabled"] is False


def test_what_is_no_digest_isnt_even_looked_for(http, registered, token, bucket):
    problem(call(http, "PUT", "/internal/refresh", token, {"rollback": "latest"}), 422, "unknown_package", "rollback")
    problem(call(http, "PUT", "/internal/refresh", token, {}), 400, "bad_json", "rollback")
    assert bucket.asked == []


def test_a_bucket_that_is_away_enables_nothing(http, database, registered, token, bucket):
    bucket.status = 0
    problem(call(http, "PUT", "/internal/refresh", token, {"rollback": PACKAGE}), 503, "unavailable")
    assert registry.switch(database)["enabled"] is False


def test_without_a_manifest_there_is_nothing_to_do(http, database, token):
    registry.enable(database, PACKAGE)
    problem(call(http, "POST", "/refreshes", token), 409, "no_manifest")
    shown = json.loads(call(http, "GET", "/refreshes", token).body)
    assert (shown["manifest"], shown["targets"], shown["refreshes"]) == (None, [], [])


@pytest.mark.parametrize("body", [{"contracts": []}, {"manifest": 1}, b"[]", b"1", b'{"half": '])
def test_a_body_that_says_anything_is_refused(http, database, enabled, token, body):
    problem(call(http, "POST", "/refreshes", token, body), 400, "bad_json")
    assert database.run("select id from engine.job") == []


def test_the_second_caller_gets_the_first_ones_id(http, database, enabled, token):
    first = call(http, "POST", "/refreshes", token)
    second = call(http, "POST", "/refreshes", token, {})

    assert (first.status_code, second.status_code) == (202, 202)
    assert first.headers["Location"] == second.headers["Location"]
    assert first.headers["Location"].endswith(f"/refreshes/{json.loads(first.body)['id']}")
    assert database.run("select follow_up from engine.job") == [{"follow_up": None}]


def test_who_asks_after_a_newer_manifest_was_registered_gets_that_one_too(http, database, engine, enabled, token):
    first = json.loads(call(http, "POST", "/refreshes", token).body)
    register(database, CONTRACT)
    assert json.loads(call(http, "POST", "/refreshes", token).body)["id"] == first["id"]

    engine.cancel(lease(engine, first["id"]).id)
    engine.recover()
    shown = json.loads(call(http, "GET", "/refreshes", token).body)["refreshes"]

    assert [(each["manifest"], each["status"]) for each in shown] == [(1, "running")]
    database.run("update engine.job set locked_until = engine.clock()")
    engine.recover()
    shown = json.loads(call(http, "GET", "/refreshes", token).body)["refreshes"]
    assert [(each["manifest"], each["status"]) for each in shown] == [(2, "queued"), (1, "failed")]


def test_a_failed_refresh_is_run_again_as_its_own_manifest_says_and_only_while_refreshes_are_enabled(
    http, database, engine, enabled, token
):
    failed = json.loads(call(http, "POST", "/refreshes", token).body)["id"]
    engine.cancel(UUID(failed))
    register(database, CONTRACT)
    registry.disable(database)
    before, path = written(database), f"/internal/failures/{failed}/requeue"

    refused = problem(call(http, "POST", path, token), 409, "not_enabled")
    assert "leaseway refresh enable" in refused["detail"]
    assert written(database) == before

    registry.enable(database, PACKAGE)
    answered = call(http, "POST", path, token)
    assert answered.status_code == 202
    assert engine.job(UUID(json.loads(answered.body)["id"])).subject == {"manifest": 1}


def test_the_answers_show_what_became_of_each_contract_and_how_fresh_each_target_is(
    http, database, engine, enabled, clock, token
):
    first = json.loads(call(http, "POST", "/refreshes", token).body)["id"]
    waiting = json.loads(call(http, "GET", f"/refreshes/{first}", token).body)
    assert [each["outcome"] for each in waiting["contracts"]] == ["waiting", "waiting"]
    assert call(http, "GET", f"/refreshes/{first}", token).headers["Retry-After"] == "2"
    leased = lease(engine, first)
    flights, months = Manifest.parse(registry.manifest(database)["body"]).in_order()
    began = clock.now() - timedelta(milliseconds=1500)
    with leased.transaction() as tx:
        leased.hold(tx)
        registry.add_audit(
            tx, leased.id, 1, flights, "refreshed", fence=leased.claim_id, started_at=began, read=7, inserted=5,
            rejected=1, watermark="2026-03-01 09:00:00+00", checks=[{"check": "min_rows", "passed": True}],
        )  # fmt: skip
        registry.add_audit(
            tx, leased.id, 1, months, "failed", fence=leased.claim_id, started_at=clock.now(), code="target_refused",
            details={"sqlstate": "23514"},
        )  # fmt: skip
    leased.fail("contract_failed", {"contract": "months", "found": 1})
    clock.advance("1 hour")

    shown = json.loads(call(http, "GET", f"/refreshes/{first}", token).body)
    assert (shown["status"], shown["state"], shown["manifest"]) == ("failed", "FAILED", 1)
    assert shown["failure"]["code"] == "contract_failed"
    done, failed = shown["contracts"]
    assert done["rows"] == {"read": 7, "inserted": 5, "updated": 0, "deleted": 0, "rejected": 1}
    assert (done["started_at"], done["finished_at"]) == ("2026-03-02T08:59:58.500Z", "2026-03-02T09:00:00.000Z")
    assert (done["seconds"], failed["seconds"]) == (1.5, 0)
    assert (failed["failure"]["code"], failed["failure"]["details"]) == ("target_refused", {"sqlstate": "23514"})
    listed = json.loads(call(http, "GET", "/refreshes?limit=1", token).body)
    fresh, never = listed["targets"]
    assert (fresh["target"], fresh["records"], fresh["age_seconds"]) == ("mart.flights", 6, 3600)
    assert fresh["watermark_age_seconds"] == 25 * 3600
    assert (never["refreshed_at"], never["last"]["failure"]["code"]) == (None, "target_refused")
    assert [each["id"] for each in listed["refreshes"]] == [listed["next"]] == [first]
    said = (json.dumps(shown) + json.dumps(listed)).replace("`leaseway ", "`")  # a remedy names commands
    for word in ("claim", "lease", "fence", "locked", "LEASEWAY_SECRET", "ledger", '"mart"', "bucket"):
        assert word not in said


def test_a_refresh_that_isnt_one_isnt_found(http, office, token):
    for job in (office.active, uuid4(), "1"):
        problem(call(http, "GET", f"/refreshes/{job}", token), 404, "not_found")


def test_nobody_changes_a_manifest_or_an_audit(database, enabled):
    for statement in (
        "update refresh.manifest set body = '{}'",
        "delete from refresh.manifest",
        "update refresh.audit set code = 'x'",
        "delete from refresh.audit",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            database.run(statement)


NIGHTLY = {"every": "day", "at": "02:00", "zone": "UTC"}


def test_an_operator_schedules_refreshes_and_each_is_of_the_newest_manifest(
    http, database, engine, clock, enabled, token
):
    problem(call(http, "GET", "/refreshes/schedule", token), 404, "not_found")
    problem(call(http, "PUT", "/refreshes/schedule", token, NIGHTLY | {"at": "26:00"}), 422, "invalid_schedule", "at")
    put = json.loads(call(http, "PUT", "/refreshes/schedule", token, NIGHTLY).body)
    assert (put["dataset"], put["pipeline"], put["cadence"]) == (None, "refresh", NIGHTLY)
    assert put["next_due_at"] == "2026-03-03T02:00:00.000Z"
    assert put["links"]["self"].endswith("/refreshes/schedule")
    register(database, CONTRACT)
    clock.advance("1 day")

    assert engine.catch_up() == {"started": 1}

    shown = json.loads(call(http, "GET", "/refreshes", token).body)
    [started] = shown["refreshes"]
    assert (started["manifest"], started["status"]) == (2, "queued")
    assert shown["schedule"]["last_job"] == started["id"]
    assert call(http, "DELETE", "/refreshes/schedule", token).status_code == 204
    problem(call(http, "DELETE", "/refreshes/schedule", token), 404, "not_found")
    assert json.loads(call(http, "GET", "/refreshes", token).body)["schedule"] is None
    acts = database.run("select act from access.act order by at")
    assert [row["act"] for row in acts] == ["refresh_schedule", "refresh_schedule_end"]


def test_while_refreshes_are_disabled_a_slot_passes_and_the_schedule_says_why(http, engine, clock, registered, token):
    call(http, "PUT", "/refreshes/schedule", token, NIGHTLY)
    clock.advance("1 day")
    assert engine.catch_up() == {"refused": 1}
    found = json.loads(call(http, "GET", "/refreshes/schedule", token).body)
    assert (found["last_refusal"]["code"], found["next_due_at"]) == ("not_enabled", "2026-03-04T02:00:00.000Z")


def test_the_schedule_of_refreshes_is_listed_to_operators_alone(http, database, engine, registered):
    everyone = tokens(database)
    call(http, "PUT", "/refreshes/schedule", everyone["operator"], NIGHTLY)
    listed = {name: call(http, "GET", "/schedules", everyone[name]) for name in ("reader", "operator")}
    assert json.loads(listed["reader"].body)["schedules"] == []
    assert [s["pipeline"] for s in json.loads(listed["operator"].body)["schedules"]] == ["refresh"]
