"""A version is taken back: asked for, answered at once, looked at; its address says so for ever."""

import json
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from tests.conftest import PUBLIC_URL

from .seeding import call, define, problem, publish, register_source, tokens, withdraw, written

VERSION = "/datasets/flights/versions/1"


@pytest.fixture
def ask(http, database, engine, clock):
    """Requests of the publisher; flights is published twice."""
    register_source(database)
    define(database)
    publish(database, engine, clock)
    publish(database, engine, clock)
    token = tokens(database)["publisher"]

    def asking(method, path, **headers):
        return call(http, method, path.removeprefix(PUBLIC_URL), token, **headers)

    return asking


def test_a_withdrawal_is_acknowledged_with_its_status_and_where_to_look(ask, queues):
    answered = ask("DELETE", VERSION)

    status = json.loads(answered.body)
    assert answered.status_code == 202
    assert answered.headers["Retry-After"] == "2"
    assert answered.headers["Location"] == f"{PUBLIC_URL}/withdrawals/{status['id']}" == status["links"]["self"]
    assert (status["pipeline"], status["status"], status["version"]) == ("withdrawal", "queued", None)
    assert queues.of(UUID(status["id"])) == [0]
    assert json.loads(ask("GET", answered.headers["Location"]).body) == status
    problem(ask("GET", f"/publications/{status['id']}"), 404)


def test_OD_90_withdrawn_it_is_gone_and_a_second_time_gives_the_same_answer(ask, http, database, engine):
    first = ask("DELETE", VERSION)
    again = ask("DELETE", VERSION)
    assert (again.status_code, again.body) == (202, first.body)

    with database.transaction() as tx:  # as the queue's worker would
        tx.run("delete from engine.job where id = %(id)s", id=json.loads(first.body)["id"])
    job = withdraw(database, engine)

    for path in (VERSION, f"{VERSION}.ttl", f"{VERSION}/files/flights.csv"):
        assert problem(call(http, "GET", path), 410, "gone")["detail"] == "Version 1 was withdrawn."
        assert call(http, "HEAD", path).status_code == 410
    listed = json.loads(call(http, "GET", "/datasets/flights/versions").body)["versions"]
    assert [(each["version"], bool(each["withdrawn_at"]), bool(each["files"])) for each in listed] == [
        (2, False, True),
        (1, True, False),
    ]
    assert call(http, "GET", "/datasets/flights").status_code == 200
    before = written(database)
    for _ in range(2):
        done = ask("DELETE", VERSION)
        assert done.status_code == 202
        assert done.headers["Location"] == f"{PUBLIC_URL}/withdrawals/{job}"
        status = json.loads(done.body)
        assert (status["status"], status["state"], status["version"]) == ("succeeded", "WITHDRAWN", 1)
        assert status["links"]["version"] == PUBLIC_URL + VERSION
        assert "Retry-After" not in done.headers
    assert written(database) == before


def test_while_something_else_is_at_work_on_the_dataset_it_is_busy(ask, database):
    job = json.loads(ask("DELETE", VERSION).body)["id"]
    before = written(database)

    for method, path in (("DELETE", "/datasets/flights/versions/2"), ("POST", "/datasets/flights/publications")):
        busy = problem(ask(method, path), 409, "subject_busy")
        assert (busy["job"], busy["pipeline"]) == (job, "withdrawal")
    assert written(database) == before


def test_there_is_no_such_version_to_withdraw(ask, database):
    before = written(database)
    for path in ("/datasets/flights/versions/3", "/datasets/fly/versions/1", "/datasets/flights/versions/x"):
        problem(ask("DELETE", path), 404, "not_found")
    problem(ask("DELETE", f"{VERSION}?force=1"), 400, "bad_parameter")
    assert written(database) == before


def test_a_failed_withdrawal_says_why_and_is_asked_for_again(ask, engine):
    location = ask("DELETE", VERSION).headers["Location"]
    job = UUID(location.rpartition("/")[2])
    engine.claim("work", job=job, ask=uuid4(), lease=timedelta(seconds=60)).fail("storage_refused", {"status": 403})

    failed = json.loads(ask("GET", location).body)
    assert (failed["status"], failed["failure"]["code"]) == ("failed", "storage_refused")
    assert ask("DELETE", VERSION).headers["Location"] != location
