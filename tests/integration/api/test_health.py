"""/health says whether the machinery runs, and why not."""

import json

import pytest

from chalicelib import pipelines

from .seeding import call, define, register_source


@pytest.fixture
def health(http, engine, database, clock):
    """What a monitor sees, after everything has run once."""
    engine.recover()
    engine.catch_up()

    def asking():
        answered = call(http, "GET", "/health")
        return answered.status_code, json.loads(answered.body)

    return asking


def test_all_is_well(health):
    status, document = health()

    assert (status, document["ok"], document["reasons"], document["past_bound"]) == (200, True, [], 0)
    assert document["last_finished"]["recovery"] == "2026-03-02T09:00:00.000Z"


def test_with_the_recovery_rule_disabled_it_is_503_with_the_reason(health, engine, clock):
    clock.advance("5 min")
    engine.catch_up()
    assert health()[0] == 200
    clock.advance("1 s")

    status, document = health()

    assert status == 503
    assert "recovery has not finished for five minutes" in document["reasons"]

    engine.recover()
    assert health()[0] == 200


def test_a_job_past_its_bound_is_503(health, engine, database, clock):
    register_source(database)
    define(database)
    pipelines.publish(engine, "flights")
    clock.advance("7 days")

    status, document = health()

    assert (status, document["past_bound"]) == (503, 1)


def test_health_is_public_and_is_never_cached(http, health):
    answered = call(http, "HEAD", "/health")

    assert answered.headers["Cache-Control"] == "no-store"
    assert answered.headers["Access-Control-Allow-Origin"] == "*"
