"""A connection's limits: how many exports use it at a time, how long a statement may take, how it is reached."""

import threading
from copy import deepcopy
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from chalicelib import pipelines
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Database
from chalicelib.engine import LeaseLost, Wait
from chalicelib.pipelines.export import ExportSubject, steps
from chalicelib.pipelines.export.slots import MAX_PAUSE, SQL, slot, take

from .conftest import DEFINITION


def exports(office, number):
    """So many exports of the trees, claimed by a worker each."""
    claimed = []
    for n in range(number):
        subject = ExportSubject(
            key=f"00000000-0000-0000-0000-{n:012}", dataset="trees", definition=1, source="trees", source_revision=1
        )
        job = office.engine.accept("export", subject).job.id
        claimed.append(claim(office, job))
    return claimed


def claim(office, job):
    leased = office.engine.claim("work", job=job, ask=uuid4(), lease=timedelta(seconds=60))
    assert leased is not None
    return leased


def slots(office):
    return office.db.run("select job_id, claim_id from dataset.connection_slot order by job_id")


def test_one_export_at_a_time_and_the_others_wait_without_spending_an_attempt(office, monkeypatch):
    for dataset in ("roads", "parks"):
        registry.put_definition(office.db, dataset, Definition.parse(deepcopy(DEFINITION)))
    running, most, real = [], [], steps.export

    def watched(relation, *arguments, **more):
        running.append(relation)
        most.append(len(slots(office)))
        if len(most) == 1:  # while the first one runs, another worker takes up the next one
            office.engine.work_on("work", [], lambda: 900.0)
        return real(relation, *arguments, **more)

    monkeypatch.setattr(steps, "export", watched)
    jobs = [pipelines.publish(office.engine, dataset).id for dataset in ("trees", "roads", "parks")]
    office.work()
    office.run(3)

    statuses = [office.engine.status(job) for job in jobs]
    assert [status.state for status in statuses] == ["PUBLISHED"] * 3
    assert [status.attempts for status in statuses] == [1, 1, 1]
    assert most == [1, 1, 1]
    waited = office.db.run(
        "select distinct job_id, attempts from engine.job_event where details ->> 'waiting_for' = 'free_connection'"
        " and job_id in (select id from engine.job where pipeline = 'export')"
    )
    assert [row["attempts"] for row in waited] == [1, 1]
    assert slots(office) == []


def test_as_many_as_the_connection_allows(office):
    registry.add_connection(office.db, "src", "LEASEWAY_SECRET_SRC", max_jobs=2)

    assert [take(job, "src") for job in exports(office, 3)] == [None, None, pytest.approx(2)]


def test_many_that_ask_at_once_never_have_more_than_there_are(office, dsn):
    """Each in a connection of its own; counted in the statement that adds one, too many would see the same count."""
    registry.add_connection(office.db, "src", "LEASEWAY_SECRET_SRC", max_jobs=2)
    jobs = [job.id for job in exports(office, 8)]
    claims = {row["id"]: row["claim_id"] for row in office.db.run("select id, claim_id from engine.job")}
    start, taken = threading.Barrier(8), []

    def ask(job):
        own = Database(dsn)
        try:
            start.wait()
            with own.transaction() as tx:
                limit = tx.run(SQL.lock_connection, connection="src")[0]["max_jobs"]
                found = tx.run(SQL.take_slot, connection="src", job=job, claim=claims[job], max_jobs=limit)[0]
            taken.append(found["taken"])
        finally:
            own.close()

    for _ in range(5):
        taken.clear()
        office.db.run("delete from dataset.connection_slot")
        threads = [threading.Thread(target=ask, args=(job,)) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == [False] * 6 + [True] * 2
        assert len(slots(office)) == 2


def test_a_slot_that_is_given_back_takes_those_of_the_dead_with_it_and_nobody_elses(office):
    registry.add_connection(office.db, "src", "LEASEWAY_SECRET_SRC", max_jobs=3)
    ours, alive, dead = exports(office, 3)
    for job in (ours, alive, dead):
        take(job, "src")
    office.db.run("update engine.job set claim_id = engine.next_claim() where id = %(id)s", id=dead.id)

    with slot(office.db, ours, "src") as pause:
        assert pause is None

    assert [row["job_id"] for row in slots(office)] == [alive.id]


def test_a_newer_claims_slot_stays_when_the_older_one_gives_its_own_back(office):
    (job,) = exports(office, 1)
    with slot(office.db, job, "src"):
        office.db.run("update dataset.connection_slot set claim_id = claim_id + 1")

    assert len(slots(office)) == 1


def test_the_one_that_waits_is_told_what_it_waits_for(office):
    first, second = exports(office, 2)
    assert take(first, "src") is None
    office.clock.advance("50 s")

    waiting = steps.export_records(second)

    assert waiting == Wait(5, waiting_for="free_connection")
    assert [row["job_id"] for row in slots(office)] == [first.id]


def test_the_pause_has_an_upper_bound(office):
    registry.add_connection(office.db, "src", "LEASEWAY_SECRET_SRC", max_jobs=1)
    first, second = exports(office, 2)
    take(first, "src")
    for _ in range(20):
        office.clock.advance("50 s")
        for job in (first, second):
            job.heartbeat(force=True)

    assert take(second, "src") == MAX_PAUSE


def test_a_slot_whose_worker_died_is_free_when_its_lease_ends(office):
    dead, next_one = exports(office, 2)
    assert take(dead, "src") is None
    assert take(next_one, "src") is not None
    for _ in range(2):  # only the other one lives
        office.clock.advance("35 s")
        next_one.heartbeat(force=True)

    assert take(next_one, "src") is None


def test_a_slot_of_a_claim_that_was_taken_away_is_free(office):
    lost, other = exports(office, 2)
    take(lost, "src")
    office.db.run("update engine.job set claim_id = engine.next_claim() where id = %(id)s", id=lost.id)

    assert take(other, "src") is None


def test_a_job_takes_its_own_slot_again(office):
    (job,) = exports(office, 1)

    assert take(job, "src") is None
    assert take(job, "src") is None
    assert len(slots(office)) == 1


def test_a_worker_without_its_claim_takes_no_slot(office):
    (job,) = exports(office, 1)
    office.clock.advance("61 s")

    with pytest.raises(LeaseLost):
        take(job, "src")
    assert slots(office) == []


def test_a_slot_is_given_back_when_the_export_fails(office):
    office.point(LEASEWAY_SECRET_SRC="postgresql://reader@127.0.0.1:9/nowhere")
    job = office.publish()
    office.work()

    assert office.engine.status(job).status == "running"
    assert slots(office) == []


@pytest.mark.parametrize(
    ("secret", "code"),
    [
        ("", "unknown_secret"),
        ("postgresql://reader:canary-password@db.example.org/x?sslmode=require", "bad_address"),
        ("postgresql://reader:canary%password@db.example.org/x", "bad_address"),
    ],
)
def test_an_address_that_is_not_safe_is_not_used(office, secret, code):
    office.point(LEASEWAY_SECRET_SRC=secret)
    job = office.publish()
    office.run(2)

    failure = office.engine.status(job)
    named = {} if secret else {"secret": "LEASEWAY_SECRET_SRC"}
    assert (failure.code, failure.details) == (code, {"step": "EXPORT", **named})


def test_the_connections_time_out_holds_for_the_export(office):
    registry.add_connection(office.db, "src", "LEASEWAY_SECRET_SRC", statement_timeout=1)
    registry.register_source(
        office.db, "trees", "src", None, "select id, name from src.trees where pg_sleep(0.1) is not null"
    )
    office.define()
    job = office.publish()
    office.run(2)

    failure = office.engine.status(job)
    assert (failure.code, failure.details["sqlstate"]) == ("source_timeout", "57014")


FAILING = {
    "source_denied": ("select id, 'x' as name from src.closed", "42501"),
    "source_changed": ("select id, gone as name from src.trees", "42703"),
    "source_bad_record": ("select 1 / (id - 7) as id, name from src.trees", "22012"),
}


@pytest.mark.parametrize("code", FAILING)
def test_a_publication_fails_with_the_code_and_the_details_of_its_export(office, admin_database_dsn, code):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("create table src.closed (id int)")
    query, sqlstate = FAILING[code]
    registry.register_source(office.db, "trees", "src", None, query)
    job = office.publish()
    office.run(2)

    failure = office.engine.status(job)
    assert (failure.pipeline, failure.code, failure.details["sqlstate"]) == ("publication", code, sqlstate)
    if code == "source_bad_record":
        assert (failure.details["record"], failure.details["column"]) == (7, "id")
    if code == "source_denied":
        assert failure.details["privilege"] == "SELECT on src.closed"
