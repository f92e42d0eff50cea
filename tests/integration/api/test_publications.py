"""A publication is asked for, answered at once, and looked at until it is finished."""

import json
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from chalicelib.settings import settings
from tests.conftest import PUBLIC_URL

from .seeding import DEFINITION, call, define, fail, problem, publish, register_source, tokens, withdraw

MEMBERS = {
    "id",
    "pipeline",
    "status",
    "state",
    "attempts",
    "progress",
    "version",
    "accepted_at",
    "started_at",
    "finished_at",
    "waiting_for",
    "failure",
    "follow_up",
    "links",
}


@pytest.fixture
def ask(http, database):
    """Requests of the publisher."""
    register_source(database)
    define(database)
    token = tokens(database)["publisher"]

    def asking(method, path, body=None, **headers):
        return call(http, method, path.removeprefix(PUBLIC_URL), token, body, **headers)

    return asking


def claim(engine, job):
    return engine.claim("work", job=UUID(job), ask=uuid4(), lease=timedelta(seconds=60))


@pytest.mark.parametrize("body", [None, {}, b" "])
def test_a_publication_is_acknowledged_with_its_status_and_where_to_look(ask, queues, body):
    answered = ask("POST", "/datasets/flights/publications", body)

    status = json.loads(answered.body)
    assert answered.status_code == 202
    assert answered.headers["Retry-After"] == "2"
    assert answered.headers["Location"] == f"{PUBLIC_URL}/publications/{status['id']}" == status["links"]["self"]
    assert status.keys() == MEMBERS
    assert (status["pipeline"], status["status"], status["state"]) == ("publication", "queued", "REQUESTED")
    assert status["accepted_at"] == "2026-03-02T09:00:00.000Z"
    assert queues.of(UUID(status["id"])) == [0]

    looked = ask("GET", answered.headers["Location"])
    assert json.loads(looked.body) == status
    assert looked.headers["Retry-After"] == "2"


def test_the_loser_of_a_race_gets_the_active_job(ask):
    first, second = (ask("POST", "/datasets/flights/publications") for _ in range(2))

    assert second.status_code == 202
    assert second.headers["Location"] == first.headers["Location"]
    assert json.loads(second.body)["follow_up"] is False


def test_who_asks_for_something_newer_hears_that_it_follows_the_active_job(ask):
    first, second = (ask("POST", f"/datasets/flights/publications{more}") for more in ("", "?accept_drop=true"))

    assert second.headers["Location"] == first.headers["Location"]
    assert [json.loads(answer.body)["follow_up"] for answer in (first, second)] == [False, True]


def test_sqs_being_away_changes_nothing_for_the_caller(ask, queues):
    queues.away = True
    assert ask("POST", "/datasets/flights/publications").status_code == 202


def test_a_subject_that_another_pipeline_holds_is_busy(ask, engine, database):
    job = json.loads(ask("POST", "/datasets/flights/publications").body)["id"]
    with database.transaction() as tx:
        tx.run("update engine.job set pipeline = 'export' where id = %(id)s", id=job)

    busy = problem(ask("POST", "/datasets/flights/publications"), 409, "subject_busy")

    assert (busy["job"], busy["pipeline"]) == (job, "export")
    assert "cancel" in busy["detail"]


def test_without_the_catalogues_own_settings_nothing_is_published(ask, environment):
    environment.delenv("LEASEWAY_CATALOG_LICENCE")
    settings.cache_clear()

    refused = problem(ask("POST", "/datasets/flights/publications"), 409, "catalog_not_configured")

    assert "`leaseway apply` a catalog.yaml, or set LEASEWAY_CATALOG_TITLE" in refused["detail"]


def test_a_dataset_without_a_definition_cant_be_published(ask):
    problem(ask("POST", "/datasets/flo/publications"), 404, "not_found")


def test_the_status_follows_the_job_to_its_end(ask, engine, clock, database):
    location = ask("POST", "/datasets/flights/publications").headers["Location"]
    job = location.rpartition("/")[2]

    leased = claim(engine, job)
    leased.heartbeat(force=True, records=10, bytes=900, total=40)
    running = json.loads(ask("GET", location).body)
    assert (running["status"], running["state"], running["attempts"]) == ("running", "GET_DATA", 1)
    assert running["progress"] == {"records": 10, "bytes": 900, "total": 40}
    assert running["version"] is None

    leased.wait(30, "export")
    waiting = json.loads(ask("GET", location).body)["waiting_for"]
    assert waiting == {"code": "export", "since": "2026-03-02T09:00:00.000Z", "until": "2026-03-02T09:00:30.000Z"}

    clock.advance("31 s")
    leased = claim(engine, job)
    leased.advance("PERSIST_DATA", [], {}, hand_over=False)
    assert json.loads(ask("GET", location).body)["version"] == 1

    leased.fail("not_conformant", {"violations": 3})
    failed = json.loads(ask("GET", location).body)
    assert failed.keys() == MEMBERS
    assert (failed["status"], failed["state"], failed["version"]) == ("failed", "FAILED", None)
    assert failed["failure"]["code"] == "not_conformant"
    assert failed["failure"]["details"] == {"step": "PERSIST_DATA", "violations": 3}
    assert failed["failure"]["sentence"].startswith("The metadata doesn't meet")
    assert "Retry-After" not in ask("GET", location).headers


def test_a_published_version_is_linked(ask, engine, clock, database):
    job = publish(database, engine, clock)

    status = json.loads(ask("GET", f"/publications/{job}").body)

    assert (status["status"], status["state"], status["version"]) == ("succeeded", "PUBLISHED", 1)
    assert status["links"]["version"] == f"{PUBLIC_URL}/datasets/flights/versions/1"


def test_a_pause_is_shown_in_every_status(ask, engine):
    location = ask("POST", "/datasets/flights/publications").headers["Location"]
    engine.pause("*", hours=2)

    assert json.loads(ask("GET", location).body)["waiting_for"] == {
        "code": "paused",
        "since": "2026-03-02T09:00:00.000Z",
        "until": "2026-03-02T11:00:00.000Z",
    }


def test_a_job_of_another_pipeline_is_no_publication(ask, engine, database):
    job = json.loads(ask("POST", "/datasets/flights/publications").body)["id"]
    database.run("update engine.job set pipeline = 'export' where id = %(id)s", id=job)

    problem(ask("GET", f"/publications/{job}"), 404)


def test_why_isnt_it_newer_is_answered_on_one_screen(ask, engine, clock, database):
    first = json.loads(ask("GET", "/datasets/flights/status").body)
    assert first["loads"] == {"unfinished": 0, "since": None}
    assert first["version"] is first["schedule"] is first["active"] is first["failure"] is first["pause"] is None

    publish(database, engine, clock)
    clock.advance("1 day")
    failed = fail(database, engine, code="source_denied", relation="public.flights")
    clock.advance("1 hour")
    ask("PUT", "/datasets/flights/schedule", {"every": "day", "at": "02:00", "zone": "Europe/Berlin"})
    active = json.loads(ask("POST", "/datasets/flights/publications").body)["id"]
    engine.pause("publication", hours=1)
    engine.recover()

    document = json.loads(ask("GET", "/datasets/flights/status").body)

    assert document["version"]["number"] == 1
    assert document["version"]["age_seconds"] == 25 * 3600
    assert document["schedule"]["next_due_at"] == "2026-03-04T01:00:00.000Z"
    assert document["active"]["id"] == active
    assert document["active"]["waiting_for"]["code"] == "paused"
    assert document["failure"]["id"] == str(failed)
    assert document["failure"]["failure"]["code"] == "source_denied"
    assert document["failure"]["command"] == "leaseway publish flights"
    assert document["pause"]["until"] == "2026-03-03T11:00:00.000Z"
    assert document["last_finished"]["recovery"] == document["last_finished"]["relay"] == document["checked_at"]
    assert document["last_finished"]["catch_up"] is None
    assert document["health"]["reasons"] == ["catch_up has not finished for five minutes"]


def test_a_dataset_whose_versions_were_all_withdrawn_is_not_one_that_was_never_published(ask, engine, clock, database):
    assert json.loads(ask("GET", "/datasets/flights/status").body)["withdrawn"] is False
    publish(database, engine, clock)
    assert json.loads(ask("GET", "/datasets/flights/status").body)["withdrawn"] is False

    database.run("update dataset.version set withdrawn_at = engine.clock(), files = '[]'")
    database.run("update dataset.dataset set current_version = null")
    assert json.loads(ask("GET", "/datasets/flights/status").body)["withdrawn"] is True


def test_a_failure_is_mended_by_a_newer_version_although_that_one_is_withdrawn(ask, engine, clock, database):
    def seen():
        document = json.loads(ask("GET", "/datasets/flights/status").body)
        return document["version"]["number"], document["failure"] is not None, document["last_withdrawal"]

    publish(database, engine, clock)
    clock.advance("1 hour")
    fail(database, engine, code="too_few_records")
    assert seen() == (1, True, None)
    clock.advance("1 hour")
    publish(database, engine, clock)
    assert seen() == (2, False, None)

    withdraw(database, engine, version=2)
    taken = {"version": 2, "withdrawn_at": json.loads(ask("GET", "/datasets/flights/status").body)["checked_at"]}
    assert seen() == (1, False, taken)

    clock.advance("1 hour")
    fail(database, engine, code="too_few_records")
    assert seen() == (1, True, taken)
    clock.advance("1 hour")
    withdraw(database, engine, version=1)
    assert json.loads(ask("GET", "/datasets/flights/status").body)["failure"] is None


def test_a_login_that_is_refused_is_told_from_a_right_that_lacks(ask, engine, database):
    fail(database, engine, code="source_denied", sqlstate="28P01")
    refused = json.loads(ask("GET", "/datasets/flights/status").body)["failure"]["failure"]

    assert (refused["code"], refused["details"]["sqlstate"]) == ("source_denied", "28P01")
    assert "password" in refused["sentence"]
    assert "GRANT" not in refused["sentence"]

    fail(database, engine, code="source_denied", sqlstate="42501")
    lacking = json.loads(ask("GET", "/datasets/flights/status").body)["failure"]["failure"]
    assert "GRANT" in lacking["sentence"]


def test_a_failure_that_a_later_version_mended_is_no_answer_any_more(ask, engine, clock, database):
    fail(database, engine)
    clock.advance("1 min")
    publish(database, engine, clock)

    assert json.loads(ask("GET", "/datasets/flights/status").body)["failure"] is None


def test_a_drop_is_accepted_by_who_asks_for_the_publication(ask, engine, database):
    fail(database, engine, code="too_few_records", records=0, minimum=1)
    assert json.loads(ask("GET", "/datasets/flights/status").body)["failure"]["command"] == (
        "leaseway publish flights --accept-drop"
    )

    problem(ask("POST", "/datasets/flights/publications?accept_drop=yes"), 400, "bad_parameter", "accept_drop")
    job = json.loads(ask("POST", "/datasets/flights/publications?accept_drop=true").body)["id"]
    assert engine.job(UUID(job)).subject["accept_drop"] is True


@pytest.mark.parametrize(
    ("at_work", "asked", "follows"),
    [
        ("", ["?accept_drop=true", "changed", ""], {"definition": 2, "accept_drop": True}),
        ("", ["changed", "", "?accept_drop=true"], {"definition": 2, "accept_drop": True}),
        ("", ["?accept_drop=true", ""], {"definition": 1, "accept_drop": True}),
        ("?accept_drop=true", [""], None),  # what is at work accepts it for both
        ("?accept_drop=true", ["changed", ""], {"definition": 2, "accept_drop": False}),  # and only for itself
    ],
)
def test_a_drop_that_was_accepted_while_a_publication_runs_stays_so_in_the_next(
    ask, engine, database, at_work, asked, follows
):
    first = json.loads(ask("POST", f"/datasets/flights/publications{at_work}").body)["id"]
    leased = claim(engine, first)
    for query in asked:
        if query == "changed":
            assert ask("PUT", "/datasets/flights/definition", DEFINITION | {"licence": "CC_BY_4_0"}).status_code == 200
        else:
            answered = ask("POST", f"/datasets/flights/publications{query}")
            assert (answered.status_code, json.loads(answered.body)["id"]) == (202, first)

    leased.fail("too_few_records", {"records": 0, "minimum": 1})

    found = engine.find("dataset:flights")
    assert (found and {name: found.subject[name] for name in ("definition", "accept_drop")}) == follows


def test_the_source_s_columns_that_are_left_out_are_named(ask, engine, clock, database):
    publish(database, engine, clock, unpublished=["gate"])

    assert json.loads(ask("GET", "/datasets/flights/status").body)["version"]["unpublished_columns"] == ["gate"]


def test_OD_14_warnings_are_counted_and_what_they_are_about_is_told_once(ask, engine, clock, database):
    publish(database, engine, clock)
    results = [{"severity": "Warning", "rule": "dcat:Dataset/dct:spatial/recommended MinCount", "field": "spatial"}] * 2
    results += [{"severity": "Warning", "rule": "dcat:Dataset/owl:versionInfo MaxCount"}]  # of an older report
    report = json.dumps({"warnings": 3, "results": results, "characters_removed": 2})
    database.run("update dataset.version set report = %(report)s::jsonb", report=report)

    told = json.loads(ask("GET", "/datasets/flights/status").body)["version"]

    assert told["characters_removed"] == 2
    assert told["warnings"] == {"count": 3, "about": ["dcat:Dataset/owl:versionInfo MaxCount", "spatial"]}


def test_the_publication_is_pinned_to_the_definition_of_now(ask, engine, database):
    define(database, title={"en": "New", "de": "Neu"})
    job = json.loads(ask("POST", "/datasets/flights/publications").body)["id"]

    assert engine.job(UUID(job)).subject["definition"] == 2
