"""The same request sent twice is one: by its key, for seven days, also in a race and over a lost reply."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from chalicelib.db import Database, DatabaseAway
from chalicelib.engine import Engine, Failure, Idempotency, Refusal
from tests import toy


def key(name="a", body="body", principal="office", route="POST /parcels"):
    return Idempotency(principal=principal.encode(), route=route, key=name.encode(), body=body.encode())


def send(engine, idempotency, name="p"):
    """Accept a tour, which has no conflict key: only the Idempotency-Key can make two of them one."""
    return engine.once(idempotency, lambda tx: engine.accept("tour", toy.Parcel(name=name), tx=tx).job)


def jobs(engine):
    return engine.db.one("select count(*) as n from engine.job")["n"]


def test_the_same_key_and_body_give_the_same_job_whatever_became_of_it(engine, queues):
    first = send(engine, key())
    assert queues.of(first.id) == [0]
    assert send(engine, key()).id == first.id
    engine.cancel(first.id)

    again = send(engine, key())
    assert isinstance(again, Failure)
    assert (again.id, again.code) == (first.id, "cancelled")
    assert jobs(engine) == 0


def test_another_key_principal_or_route_is_another_request(engine):
    every = [key(), key("b"), key(principal="other"), key(route="POST /letters"), None, None]
    sent = [send(engine, each).id for each in every]
    assert len(set(sent)) == len(every)
    assert [send(engine, each).id for each in every if each] == sent[:4]


def test_another_body_under_the_same_key_is_refused_and_nothing_is_accepted(engine):
    first = send(engine, key())
    with pytest.raises(Refusal) as refused:
        send(engine, key(body="other"))
    assert (refused.value.code, refused.value.field) == ("idempotency_mismatch", "Idempotency-Key")
    assert jobs(engine) == 1
    assert send(engine, key()).id == first.id


def test_what_was_refused_leaves_its_key_free(engine):
    def refuse(tx):
        raise Refusal("not_found")

    with pytest.raises(Refusal):
        engine.once(key(), refuse)
    assert engine.db.run("select 1 from engine.idempotency") == []
    assert send(engine, key(body="mended")).status == "queued"


def test_after_seven_days_it_is_a_new_request_pruned_or_not(engine, clock):
    first = send(engine, key())
    clock.advance("7 days -1 second")
    assert send(engine, key()).id == first.id  # which doesn't make it last longer
    engine.clean_up(removers={})
    assert engine.db.run("select 1 from engine.idempotency") != []
    clock.advance("1 second")

    second = send(engine, key(body="other"))
    assert second.id != first.id
    assert send(engine, key(body="other")).id == second.id
    with pytest.raises(Refusal):
        send(engine, key())
    clock.advance("7 days")
    assert engine.clean_up(removers={})["pruned_keys"] == 1
    assert engine.db.run("select 1 from engine.idempotency") == []


def test_a_failure_that_was_purged_is_the_answer_as_long_as_its_key_lasts(engine, clock):
    first = send(engine, key())
    engine.cancel(first.id)
    failed = send(engine, key())
    engine.purge(first.id)

    assert engine.status(first.id) is None
    assert send(engine, key()) == failed
    with pytest.raises(Refusal):
        send(engine, key(body="other"))
    clock.advance("7 days")
    second = send(engine, key())
    assert second.id != first.id
    engine.cancel(second.id)
    assert engine.db.run("select failure from engine.idempotency") == [{"failure": None}]
    engine.db.run("delete from engine.failure")  # as earlier releases purged
    assert send(engine, key()).status == "queued"


def test_each_key_keeps_the_failure_that_came_of_it(engine):
    keys = key("a"), key("b"), key("c")
    jobs = [send(engine, each).id for each in keys]
    for job in jobs:
        engine.cancel(job)
    failed = [send(engine, each) for each in keys]
    for job in (jobs[1], jobs[0], jobs[2]):
        engine.purge(job)
    assert [send(engine, each) for each in keys] == failed


def test_the_record_is_kept_with_its_job_or_not_at_all(engine):
    def dying(tx):
        engine.accept("tour", toy.Parcel(name="p"), tx=tx)
        raise RuntimeError("before the commit")

    with pytest.raises(RuntimeError):
        engine.once(key(), dying)
    assert jobs(engine) == 0
    assert engine.db.run("select 1 from engine.idempotency union all select 1 from engine.outbox") == []


def test_T27_a_reply_lost_after_the_commit_costs_nothing(dsn, clock, settings, queues):
    lossy = toy.Lossy(dsn)
    engine = Engine(lossy, toy.PIPELINES, settings, queues, monotonic=clock.monotonic, sleep=clock.sleep)
    lossy.commits = 1
    with pytest.raises(DatabaseAway):
        send(engine, key())
    assert jobs(engine) == 1

    assert send(engine, key()).status == "queued"
    assert jobs(engine) == 1
    assert len(queues.sent) == 1
    lossy.close()


def test_callers_that_race_with_one_key_get_one_answer(engine, dsn, settings, queues):
    callers = 8
    for race in range(10):
        ready = Barrier(callers)

        def ask(number, ready=ready, race=race):
            db = Database(dsn)
            ready.wait()
            try:
                return send(Engine(db, toy.PIPELINES, settings, queues), key(f"race {race}"), name=f"p{number}").id
            finally:
                db.close()

        with ThreadPoolExecutor(callers) as pool:
            assert len(set(pool.map(ask, range(callers)))) == 1
        assert jobs(engine) == race + 1
