"""A transaction that somebody leaves open: dead rows pile up, the work goes on, and its age is told."""

import time

import psycopg
import pytest

from chalicelib.engine import Engine
from tests import toy
from tests.toy import Parcel


@pytest.fixture
def snapshot(admin_database_dsn):
    """A session that looks at the past."""
    with psycopg.connect(admin_database_dsn) as idle:
        idle.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        idle.execute("select count(*) from engine.job")
        yield idle


def test_T13_work_goes_on_beside_an_idle_snapshot_and_its_age_is_the_figure_of_health(engine, clock, snapshot):
    ages = [engine.health().oldest_snapshot]
    for number in range(50):
        engine.accept("delivery", Parcel(name=f"p{number}"))
        if number % 10 == 0:
            toy.take(engine)  # by a worker that dies
        engine.work_on("work", [], lambda: 300)
        clock.advance("6 min")
        engine.recover()
    engine.work_on("work", [], lambda: 300)
    engine.clean_up(removers={})
    ages.append(engine.health().oldest_snapshot)

    assert {job.status for job in engine.jobs(limit=100)} == {"succeeded"}
    assert len(engine.jobs(limit=100)) == 50
    assert 0 < ages[0] < ages[1]
    assert engine.oldest_snapshot() >= ages[1]
    assert engine.health().ok or engine.health().reasons == ["catch_up has not finished for five minutes"]

    snapshot.rollback()
    assert engine.oldest_snapshot() < ages[1]


def test_T13_a_transaction_without_a_snapshot_is_none(engine: Engine, admin_database_dsn):
    with psycopg.connect(admin_database_dsn) as idle:
        idle.execute("select 1")  # read committed, between two statements: it keeps nothing
        assert engine.oldest_snapshot() == 0


def test_T13_a_snapshot_of_another_database_keeps_nothing_of_ours(engine: Engine, admin_dsn):
    with psycopg.connect(admin_dsn) as elsewhere:
        elsewhere.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        elsewhere.execute("select count(*) from pg_class")
        assert engine.oldest_snapshot() == 0


SLOW_TO_ANALYZE = """
create schema slow;
create function slow.waits(n int) returns int immutable language plpgsql as $$
begin
    perform pg_advisory_xact_lock_shared(7);
    return n;
end $$;
create table slow.t (n int) with (autovacuum_analyze_threshold = 0, autovacuum_analyze_scale_factor = 0);
create index on slow.t (slow.waits(n));
"""
AUTOVACUUM = """
select pid
  from pg_stat_activity
 where backend_type = 'autovacuum worker'
   and datname = current_database()
   and backend_xmin is not null
   and wait_event = 'advisory'
"""


@pytest.fixture
def autovacuum(admin_database_dsn):
    """An autovacuum that has looked at a table, and gets no further."""
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute(SLOW_TO_ANALYZE)
        admin.execute("select pg_advisory_lock(7)")
        admin.execute("insert into slow.t values (1)")
        admin.execute("alter system set autovacuum = on")
        admin.execute("alter system set autovacuum_naptime = '1 s'")
        admin.execute("select pg_reload_conf()")
        try:
            until = time.monotonic() + 60
            while not (found := admin.execute(AUTOVACUUM).fetchall()):
                assert time.monotonic() < until, "no autovacuum came"
                time.sleep(0.05)
            yield found
        finally:
            admin.execute("alter system reset autovacuum")
            admin.execute("alter system reset autovacuum_naptime")
            admin.execute("select pg_reload_conf()")
            admin.execute("select pg_advisory_unlock(7)")
            admin.execute("drop schema slow cascade")


def test_T13_an_autovacuum_is_none_that_somebody_left_open(engine: Engine, autovacuum):
    assert engine.oldest_snapshot() == 0
