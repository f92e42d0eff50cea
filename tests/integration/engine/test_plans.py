"""The statements that run every minute touch an index and the rows they want, however full the tables are."""

from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest
from psycopg.types.json import Jsonb

from chalicelib.engine.lease import sql

FULL = """
insert into engine.job (pipeline, queue, conflict_key, subject, state, queue_budget, run_budget, accepted_at, run_at
                      , locked_until, deadline_at, finished_at, claim_id)
select 'delivery', 'work', 'parcel:' || n, '{}', case when done then 'DELIVERED' else 'REQUESTED' end, '24 h', '6 h'
     , now
     , case when not done then now - n * interval '1 s' end
     , case when not done then now + n * interval '1 s' end
     , case when not done then now + interval '30 h' end
     , case when done then now end
     , case when done then n end
  from generate_series(1, 20000) as n, lateral (select n > 4000 as done, engine.clock() as now) as t;
insert into engine.outbox (job_id, queue, run_at, send_at)
select id, queue, run_at, now + interval '1 h' from engine.job, lateral (select engine.clock() as now) as t
 where finished_at is null;
insert into engine.ledger (job_id, claim_id, kind, locator, status, kept_by, noted_at)
select id, 1, 's3_object', '{}', 'kept', 'PACK', now from engine.job, lateral (select engine.clock() as now) as t;
analyze engine.job, engine.outbox, engine.ledger;
"""

ASK = {
    "queue": "work",
    "ask": uuid4(),
    "lease": timedelta(1),
    "pipelines": ["delivery"],
    "first_steps": Jsonb({"delivery": "PACK"}),
}
PARAMETERS = {
    "claim_next_job": ASK,
    "claim_job": {**ASK, "job_id": uuid4()},
    "list_overdue_jobs": {"passed": []},
    "count_past_bound": {},
    "take_owed": {"job_id": None},
    "take_garbage": {},
    "find_active_job": {"conflict_key": "parcel:7"},
    "count_scheduled_jobs": {},
}


@pytest.fixture
def full(engine, admin_database_dsn):
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute(FULL)
        yield admin


@pytest.mark.parametrize("statement", PARAMETERS)
def test_T12_a_statement_reads_its_index_and_few_rows(full, statement):
    text = getattr(sql, statement)
    [index] = [line.removeprefix("-- index:  ") for line in text.splitlines() if line.startswith("-- index:")]
    with full.transaction(force_rollback=True):
        plan = full.execute("explain (analyze, buffers, format text) " + text, PARAMETERS[statement]).fetchall()
    lines = [line for (line,) in plan]
    lines = lines[: next(number for number, line in enumerate(lines) if line.startswith("Planning"))]
    assert not [line for line in lines if "Seq Scan on job" in line or "Seq Scan on outbox" in line], lines
    assert any(index.split(", ")[-1] in line for line in lines), "\n".join(lines)
    read = max(int(line.split("hit=")[1].split()[0]) for line in lines if "Buffers: shared hit=" in line)
    assert read < 150, lines  # pages; the whole table has over 500
