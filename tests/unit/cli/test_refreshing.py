"""`leaseway refresh` over HTTP: started, watched, looked at."""

import json

import pytest

from chalicelib.cli import refreshing
from chalicelib.cli.remote import Remote

from .conftest import JOB

STATUS = {
    "id": JOB,
    "pipeline": "refresh",
    "status": "queued",
    "state": "REQUESTED",
    "attempts": 0,
    "progress": {"records": 0, "bytes": 0, "total": None},
    "version": None,
    "accepted_at": "2026-03-02T09:00:00.000Z",
    "started_at": None,
    "finished_at": None,
    "waiting_for": None,
    "failure": None,
    "links": {},
    "manifest": 3,
}
FAILURE = {"code": "contract_failed", "sentence": "A contract failed.", "details": {"contract": "roads"}}
CONTRACTS = [
    {
        "contract": "trees",
        "target": "mart.trees",
        "depends_on": [],
        "outcome": "refreshed",
        "failure": None,
        "rows": {"read": 1200, "inserted": 7, "updated": 2, "deleted": 1, "rejected": 0},
        "checks": [{"check": "min_rows", "passed": True, "found": 1200, "bound": 1}],
        "seconds": 1.5,
    },
    {
        "contract": "roads",
        "target": "mart.roads",
        "depends_on": [],
        "outcome": "failed",
        "failure": {"code": "check_failed", "sentence": "Records are missing."},
        "rows": {"read": 3, "inserted": 0, "updated": 0, "deleted": 0, "rejected": 0},
        "checks": [{"check": "min_rows", "passed": False, "found": 3, "bound": 10}],
        "seconds": 0.5,
    },
    {"contract": "parks", "target": "mart.parks", "depends_on": [], "outcome": "waiting"},
]
TARGET = {
    "contract": "trees",
    "target": "mart.trees",
    "refreshed_at": "2026-03-02T09:00:00.000Z",
    "watermark": None,
    "records": 1200,
    "last": {"refresh": JOB, "outcome": "failed", "failure": {"code": "check_failed", "sentence": "…"}},
}
SHOWN = {
    "enabled": True,
    "enabled_at": "2026-03-01T09:00:00.000Z",
    "rollback": "ab" * 32,
    "schedule": None,
    "manifest": {"version": 3, "sha256": "x", "registered_at": "2026-03-01T09:00:00.000Z"},
    "targets": [TARGET],
    "refreshes": [STATUS | {"status": "failed", "state": "FAILED", "failure": FAILURE}],
    "next": None,
}
NOTHING = SHOWN | {
    "enabled": False,
    "enabled_at": None,
    "rollback": None,
    "manifest": None,
    "targets": [],
    "refreshes": [],
}


def accept(server, **ended):
    where = f"{server.url}/refreshes/{JOB}"
    server.tell("POST /refreshes", STATUS, 202, Location=where)
    server.tell(f"GET /refreshes/{JOB}", STATUS | {"status": "succeeded", "contracts": CONTRACTS[:1]} | ended)


def test_it_starts_with_an_empty_body_and_says_where_to_look(server, run):
    accept(server)
    for command in (["refresh"], ["refresh", "start"]):
        told = run(*command)
        assert told.exit_code == 0
        assert f"Accepted as job {JOB}" in told.output
    assert [asked[1] for asked in server.asked] == [{}, {}]
    assert json.loads(run("refresh", "start", "--json").output)["id"] == JOB


def test_it_is_watched_to_its_end_and_each_contract_shown(server, run):
    accept(server)
    told = run("refresh", "start", "--wait")
    assert told.exit_code == 0
    assert "trees     mart.trees  refreshed  1,200  7         2        1        0         1.5" in told.output
    assert json.loads(run("refresh", "start", "--wait", "--json").output)["contracts"][0]["contract"] == "trees"


def test_wait_is_taken_without_start_too(server, run):
    accept(server)
    assert "trees     mart.trees  refreshed" in run("refresh", "--wait").output
    assert "leaseway refresh start --wait" in run("refresh", "--wait", "history").output


def test_a_failure_ends_the_watching_with_1_and_names_the_checks(server, run):
    accept(server, status="failed", failure=FAILURE, contracts=CONTRACTS)
    told = run("refresh", "start", "--wait")
    assert told.exit_code == 1
    assert "! roads: min_rows (found 3, bound 10)" in told.output
    assert "! roads: Records are missing. [check_failed]" in told.output
    assert "contract_failed: contract roads" in told.output
    assert "parks     mart.parks  waiting" in told.output


def test_the_status_says_how_fresh_each_target_is(server, run):
    server.tell("GET /refreshes?limit=1", SHOWN)
    told = run("refresh", "status").output
    assert "version 3" in told
    assert "mart.trees  1,200" in told
    assert "failed: check_failed" in told
    assert json.loads(run("refresh", "status", "--json").output) == SHOWN


def test_where_nothing_is_set_up_the_status_says_what_to_do(server, run):
    server.tell("GET /refreshes?limit=1", NOTHING)
    told = run("refresh", "status").output
    for command in ("leaseway refresh enable", "leaseway manifest register"):
        assert command in told


def test_the_status_of_one_refresh_is_that_of_its_contracts(server, run):
    server.tell(f"GET /refreshes/{JOB}", STATUS | {"contracts": CONTRACTS})
    assert "failed: check_failed" in run("refresh", "status", JOB).output
    assert json.loads(run("refresh", "status", JOB, "--json").output)["manifest"] == 3


def test_the_history_has_every_refresh_with_why_it_failed(server, run):
    server.tell("GET /refreshes?limit=20", SHOWN)
    assert "A contract failed. [contract_failed: contract roads]" in run("refresh", "history").output
    assert json.loads(run("refresh", "history", "--json").output)[0]["manifest"] == 3


def test_it_is_enabled_with_a_package_to_go_back_to_and_disabled(server, run):
    server.tell("PUT /internal/refresh", {"enabled": True})
    server.tell("DELETE /internal/refresh", None, 204)
    assert run("refresh", "enable").exit_code == 2
    assert "enabled" in run("refresh", "enable", "--rollback", "ab" * 32).output
    assert "disabled" in run("refresh", "disable").output
    assert ("PUT /internal/refresh", {"rollback": "ab" * 32}) in [asked[:2] for asked in server.asked]


NIGHTLY = {
    "dataset": None,
    "pipeline": "refresh",
    "cadence": {"every": "day", "at": "02:00", "zone": "Europe/Berlin"},
    "next_due_at": "2026-03-03T01:00:00.000Z",
    "last_due_at": None,
    "last_refusal": {"code": "not_enabled", "sentence": "Refreshes aren't enabled."},
}


def test_it_is_scheduled_listed_and_ended(server, run):
    server.tell("PUT /refreshes/schedule", NIGHTLY)
    server.tell("DELETE /refreshes/schedule", None, 204)
    server.tell("GET /schedules", {"schedules": [NIGHTLY]})
    server.tell("GET /refreshes?limit=1", SHOWN | {"schedule": NIGHTLY})

    assert (
        "2026-03-03" in run("refresh", "schedule", "--every", "day", "--at", "02:00", "--zone", "Europe/Berlin").output
    )
    assert server.asked[-1][1] == NIGHTLY["cadence"]
    assert "(refresh)  every day at 02:00 Europe/Berlin" in run("schedule", "list").output
    shown = run("refresh", "status").output
    assert "every day at 02:00 Europe/Berlin" in shown
    assert "Refreshes aren't enabled." in shown
    assert "no schedule any more" in run("refresh", "schedule", "--off").output


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--every", "day"],
        ["--at", "02:00"],
        ["--off", "--every", "day", "--at", "02:00"],
        ["--every", "week", "--at", "2"],
    ],
)
def test_half_a_schedule_is_no_schedule(server, run, options):
    assert run("refresh", "schedule", *options).exit_code == 2
    assert server.asked == []


def test_the_local_stack_says_which_packages_there_are_to_go_back_to(server, run, monkeypatch):
    monkeypatch.setattr(refreshing, "stack", lambda: None)
    monkeypatch.setattr(refreshing, "_deployed", lambda stack: "8c1f")
    monkeypatch.setattr(refreshing, "remote", lambda: Remote(server.url, None, ""))
    server.tell("GET /refreshes?limit=1", {"rollback": "77aa"})
    server.problem("PUT /internal/refresh", 422, "unknown_package", "There is no package of that digest")

    elsewhere = run("refresh", "enable")
    monkeypatch.delenv("LEASEWAY_URL")
    unsaid, unknown = run("refresh", "enable"), run("refresh", "enable", "--rollback", "0000")

    assert "`aws s3 ls s3://$LEASEWAY_DEPLOY_BUCKET`" in elsewhere.stderr
    assert (elsewhere.exit_code, unsaid.exit_code, unknown.exit_code) == (2, 2, 1)
    for said in (unsaid.stderr, unknown.stderr):
        assert "The local stack keeps 8c1f (deployed now), 77aa (named before)." in said
