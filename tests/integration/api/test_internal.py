"""What operators see and do, and that each act is recorded with who did it."""

import json
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from chalicelib.pipelines.refresh import RefreshSubject

from .seeding import call, fail, problem, publish, written
from .test_rights import CATALOG

UNKNOWN = "019ad0c2-0000-7000-8000-000000000000"


@pytest.fixture
def ask(http, office):
    """Requests of the operator in the small office."""

    def asking(method, path, body=None, **headers):
        return call(http, method, path, office.tokens["operator"], body, **headers)

    return asking


def acts(database):
    return [(a["principal"], a["act"], a["job_id"], a["target"]) for a in database.run("select * from access.act")]


def test_jobs_are_listed_newest_first_page_by_page(ask, office):
    first = json.loads(ask("GET", "/internal/jobs?limit=1").body)
    second = json.loads(ask("GET", f"/internal/jobs?limit=50&after={first['next']}").body)
    everything = json.loads(ask("GET", "/internal/jobs").body)

    assert first["jobs"] + second["jobs"] == everything["jobs"]
    assert everything["next"] is None
    assert everything["jobs"][0]["id"] == str(office.active)
    assert everything["jobs"][0]["subject"]["dataset"] == "flights"
    queued = json.loads(ask("GET", "/internal/jobs?status=queued&pipeline=publication").body)["jobs"]
    assert [job["id"] for job in queued] == [str(office.active)]


def test_a_job_is_shown_with_its_bounds_and_its_history(ask, office, engine):
    leased = engine.claim("work", job=office.active, ask=uuid4(), lease=timedelta(seconds=60))

    shown = json.loads(ask("GET", f"/internal/jobs/{office.active}").body)

    assert shown["claim_id"] == leased.claim_id
    assert shown["locked_until"] == "2026-03-02T11:01:00.000Z"
    assert shown["deadline_at"] > shown["locked_until"]
    assert [event["event"] for event in shown["history"]] == ["accepted", "claimed"]
    assert json.loads(ask("GET", f"/internal/jobs/{office.failed}").body)["failure"]["code"] == "source_denied"


def test_failures_are_listed_and_found_by_code(ask, office, engine, database):
    engine.cancel(office.active)
    timeout = fail(database, engine, "flights", "source_timeout", seconds=30)

    found = json.loads(ask("GET", "/internal/failures").body)["failures"]
    by_code = json.loads(ask("GET", "/internal/failures?code=source_timeout").body)["failures"]

    assert {f["failure"]["code"] for f in found} == {"cancelled", "source_timeout", "source_denied"}
    assert [f["id"] for f in by_code] == [str(timeout)]
    shown = json.loads(ask("GET", f"/internal/failures/{timeout}").body)
    assert shown["failure"]["details"]["seconds"] == 30
    assert [event["event"] for event in shown["history"]][-1] == "failed"


def test_a_failure_that_a_later_success_has_mended_is_marked(ask, office, engine, database, clock):
    engine.cancel(office.active)

    def marked():
        listed = json.loads(ask("GET", "/internal/failures?code=source_denied").body)["failures"]
        shown = json.loads(ask("GET", f"/internal/failures/{office.failed}").body)
        assert [f["id"] for f in listed] == [str(office.failed)]
        assert listed[0]["mended"] is shown["mended"]
        return shown["mended"]

    assert marked() is False
    clock.advance("1 min")
    publish(database, engine, clock, "flatlands")
    assert marked() is True


def test_an_unowned_job_is_cancelled_at_once_and_an_owned_one_is_asked_to_stop(ask, office, engine, database):
    cancelled = ask("POST", f"/internal/jobs/{office.active}/cancel")
    assert cancelled.status_code == 200
    assert json.loads(cancelled.body)["failure"]["code"] == "cancelled"
    again = ask("POST", f"/internal/jobs/{office.active}/cancel")
    assert (again.status_code, json.loads(again.body)["status"]) == (200, "failed")

    job = json.loads(ask("POST", "/datasets/flights/publications").body)["id"]
    engine.claim("work", job=job, ask=uuid4(), lease=timedelta(seconds=60))
    asked = ask("POST", f"/internal/jobs/{job}/cancel")
    assert asked.status_code == 202
    assert json.loads(asked.body)["cancel_requested"] is True

    assert acts(database)[-1] == ("operator@example.org", "cancel", UUID(job), "requested")


def test_a_failure_is_run_again_as_a_new_job(ask, office, database):
    answered = ask("POST", f"/internal/failures/{office.failed}/requeue")

    made = json.loads(answered.body)
    assert answered.status_code == 202
    assert answered.headers["Location"].endswith(f"/publications/{made['id']}")
    assert made["id"] != str(office.failed)
    assert json.loads(ask("GET", f"/internal/failures/{office.failed}").body)["requeued_as"] == made["id"]
    assert acts(database) == [("operator@example.org", "requeue", office.failed, made["id"])]


def test_a_failure_is_run_again_once_under_one_key(ask, office, engine, database):
    address, key = f"/internal/failures/{office.failed}/requeue", {"idempotency_key": "monday"}
    first = ask("POST", address, **key)
    assert first.status_code == 202
    assert ask("POST", address, {}, **key).body == first.body
    engine.cancel(UUID(json.loads(first.body)["id"]))
    assert ask("DELETE", f"/internal/failures/{office.failed}").status_code == 204  # the key is looked at first

    again = json.loads(ask("POST", address, **key).body)

    assert (again["id"], again["failure"]["code"]) == (json.loads(first.body)["id"], "cancelled")
    assert [act[1] for act in acts(database)] == ["requeue", "purge"]
    problem(ask("POST", address, idempotency_key="tuesday"), 404)
    problem(ask("POST", address, idempotency_key="two words"), 400, "bad_request", "Idempotency-Key")


def test_under_another_key_a_failure_is_run_again_anew(ask, office, engine, database):
    address = f"/internal/failures/{office.failed}/requeue"
    first = json.loads(ask("POST", address, idempotency_key="monday").body)["id"]
    problem(ask("POST", address, idempotency_key="tuesday"), 409, "subject_busy")
    engine.cancel(UUID(first))

    assert json.loads(ask("POST", address, idempotency_key="tuesday").body)["id"] != first


def test_something_else_under_the_key_of_a_requeue_is_refused(ask, office, engine, database):
    address, key = f"/internal/failures/{office.failed}/requeue", {"idempotency_key": "monday"}
    ask("POST", address, **key)
    database.run("update engine.idempotency set body = %(body)s", body=b"as if this release took a body")
    before = written(database)

    problem(ask("POST", address, **key), 409, "idempotency_mismatch", "Idempotency-Key")
    assert written(database) == before


def test_T07_a_failure_whose_subject_is_busy_stays_as_it_is(ask, office, engine, database):
    engine.cancel(office.active)
    active = json.loads(ask("POST", "/datasets/flights/publications").body)["id"]

    refused = problem(ask("POST", f"/internal/failures/{office.active}/requeue"), 409, "subject_busy")

    assert refused["job"] == active
    assert json.loads(ask("GET", f"/internal/failures/{office.active}").body)["requeued_as"] is None
    assert acts(database) == []


def test_a_failure_is_forgotten_once(ask, office, database):
    assert ask("DELETE", f"/internal/failures/{office.failed}").status_code == 204
    problem(ask("DELETE", f"/internal/failures/{office.failed}"), 404)
    problem(ask("GET", f"/internal/failures/{office.failed}"), 404)
    assert acts(database) == [("operator@example.org", "purge", office.failed, None)]


def test_a_pipeline_is_paused_and_goes_on(ask, database):
    paused = json.loads(ask("PUT", "/internal/pause", {"pipeline": "publication", "hours": 0.5}).body)
    assert (paused["pipeline"], paused["until"]) == ("publication", "2026-03-02T11:30:00.000Z")
    assert "publication" in [p["pipeline"] for p in json.loads(ask("GET", "/health").body)["pauses"]]

    assert ask("DELETE", "/internal/pause?pipeline=publication").status_code == 204
    problem(ask("DELETE", "/internal/pause?pipeline=publication"), 404)
    assert json.loads(ask("PUT", "/internal/pause").body)["pipeline"] == "*"
    assert ask("DELETE", "/internal/pause").status_code == 204
    assert [act[1] for act in acts(database)] == ["pause", "resume", "pause", "resume"]


def test_a_part_is_paused_with_its_whole_and_says_so(ask):
    def paused():
        return {pause["pipeline"] for pause in json.loads(ask("GET", "/health").body)["pauses"]}

    before = paused()
    for method, path, body in (
        ("PUT", "/internal/pause", {"pipeline": "export"}),
        ("DELETE", "/internal/pause?pipeline=export", None),
    ):
        document = problem(ask(method, path, body), 400)
        assert (document["field"], document["detail"]) == (
            "pipeline",
            "It is paused, and goes on, with what it is a part of: publication.",
        )
    assert ask("PUT", "/internal/pause", {"pipeline": "publication"}).status_code == 200
    assert paused() - before == {"export", "publication"}
    assert ask("DELETE", "/internal/pause?pipeline=publication").status_code == 204
    assert paused() == before


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/internal/jobs/{active}/cancel", None),
        ("POST", "/internal/failures/{failed}/requeue", None),
        ("DELETE", "/internal/failures/{failed}", None),
        ("PUT", "/internal/pause", {"pipeline": "refresh"}),
        ("DELETE", "/internal/pause?pipeline=load", None),
        ("PUT", "/internal/catalog", CATALOG),
        ("POST", "/refreshes", None),
    ],
)
def test_no_act_is_done_without_its_record(ask, office, engine, database, monkeypatch, method, path, body):
    engine.pause("load")
    monkeypatch.setattr("chalicelib.pipelines.refresh.pin", lambda tx, wanted: RefreshSubject(manifest=1))
    for module in ("internal", "refreshes"):
        monkeypatch.setattr(f"chalicelib.api.{module}.record_act", fails)
    before = written(database)

    assert ask(method, path.format(**vars(office)), body).status_code == 500
    assert written(database) == before


def fails(*_args, **_more):
    raise RuntimeError


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", f"/internal/jobs/{UNKNOWN}"),
        ("POST", f"/internal/jobs/{UNKNOWN}/cancel"),
        ("GET", f"/internal/failures/{UNKNOWN}"),
        ("POST", f"/internal/failures/{UNKNOWN}/requeue"),
        ("DELETE", f"/internal/failures/{UNKNOWN}"),
        ("GET", f"/publications/{UNKNOWN}"),
    ],
)
def test_a_job_nobody_knows_is_not_found(ask, database, method, path):
    problem(ask(method, path), 404, "not_found")
    assert acts(database) == []
