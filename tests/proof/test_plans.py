"""Every statement reads the indexes its header names and few rows beside those it is after, however full the tables.

50,000 unfinished and 200,000 finished jobs, the real clock, whatever the planner makes of them; and each changes the
same rows, in the same way, however it is planned. A statement that is new is looked at by itself: it needs an entry
only where it is after more than one row, or other rows than the usual ones, or picks them itself.
"""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

import chalicelib.engine
from chalicelib.engine.lease import sql
from tests.conftest import _database
from tests.proof.twins import function

# n is a job's number: to 200,000 finished, then 10,000 owned (the last 1,000 by dead workers) and 40,000 unowned (the
# first 30,000 due, 2,000 of them with a wake-up that was lost; five held by a pause; the last 1,000 in a line, behind
# its head).
FILL = """
set synchronous_commit = off;
create function id(n int) returns uuid language sql immutable
    return ('01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid;
insert into engine.job (id, pipeline, queue, conflict_key, order_key, order_number, held_back, subject, state, attempts
                      , queue_budget, run_budget, schedule, claim_id, lease_owner, accepted_at, started_at, finished_at
                      , run_at, locked_until, deadline_at)
select id(n), case when n between 245001 and 245005 then 'paused1' else 'delivery' end, 'work', 'parcel:' || n
     , case when n >= 249000 then 'line' end, case when n >= 249000 then n end, n > 249000
     , jsonb_build_object('name', n)
     , case when done then 'DELIVERED' when owned then 'PACK' else 'REQUESTED' end, (done or owned)::int
     , '24 h', '6 h', case when n % 4000 = 0 then 'nightly' || n end
     , case when done or owned then n end, case when owned then id(n) end
     , now - interval '1 d', case when done or owned then now - interval '1 d' end
     , case when done then now - (200000 - n) * interval '20 s' end
     , case when done then null when n <= 240000 then now - (240001 - n) * interval '1 s' else now + interval '1 h' end
     , case when not done then now + case when late then interval '-10 min' else interval '2 h' end end
     , case when not done then now + interval '30 h' end
  from generate_series(1, 250000) as n
     , lateral (select n <= 200000 as done, n between 200001 and 210000 as owned
                     , n between 209001 and 212000 or n = 249001 as late, clock_timestamp() as now) as t;
insert into engine.outbox (job_id, queue, run_at, send_at, number)
select id, queue, run_at, run_at, 1 from engine.job where finished_at is null;
insert into engine.ledger (job_id, claim_id, kind, locator, status, kept_by, noted_at, next_try_at)
select id, 1, 's3_object', '{}', case when n % 10 = 0 then 'garbage' else 'kept' end
     , case when n % 10 > 0 then 'PACK' end, now, case when n % 10 = 0 then now + (n - 100000) * interval '1 s' end
  from generate_series(1, 250000) as n, lateral (select id(n), clock_timestamp() as now) as t;
insert into engine.job_event (job_id, at, kind, state, claim_id, attempts)
select id(n), clock_timestamp() - (250000 - n) * interval '20 s', kind, 'PACK', n, 1
  from generate_series(1, 250000) as n, unnest(array['claimed', 'advanced']) as kind;
insert into engine.failure (job_id, pipeline, conflict_key, subject, state, code, details, attempts
                          , accepted_at, failed_at)
select id(n + 1000000), 'delivery', 'parcel:' || n % 1000, '{}', 'PACK', 'internal_error', '{}', 3, now, now
  from generate_series(1, 50000) as n, lateral (select clock_timestamp() as now) as t;
insert into engine.idempotency (principal, route, key, body, job_id, expires_at)
select '\\x00', 'POST /', n::text::bytea, '\\x00', id(n), clock_timestamp() + (n - 10000) * interval '1 min'
  from generate_series(1, 50000) as n;
insert into engine.schedule (key, pipeline, subject, cadence, next_due_at)
select 'nightly' || n, 'delivery', '{}', '{}', clock_timestamp() + (n - 100) * interval '1 min'
  from generate_series(1, 5000) as n;
insert into engine.pause (pipeline, since, until)
select 'paused' || n, now, now + interval '1 d' from generate_series(1, 5) as n, clock_timestamp() as now;
insert into engine.line (order_key, last_number) values ('line', 250000);
select setval('engine.claim_id', 250000);
analyze;
"""
FILLED = 250_000
"""No claim and no row of the ledger has a higher number; what has one is new."""

CHANCE = re.compile(
    r"\d{4}-\d\d-\d\d[T ]\d\d:|(?!01900000-0000)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$|[0-9A-F]+/[0-9A-F]+$"
)
"""A time, an id that wasn't filled in, a place in the log: another one each time."""

TELL = """
create unlogged table told (relation text, before jsonb, after jsonb);
create function tell() returns trigger language plpgsql as $$
begin
    insert into public.told values (tg_table_name, to_jsonb(old), to_jsonb(new));
    return null;
end $$;
do $$
declare
    name text;
begin
    for name in select tablename from pg_tables where schemaname = 'engine' loop
        execute format('create trigger tell after insert or update or delete on engine.%I for each row'
                       ' when (current_setting(''proof.telling'', true) = ''on'') execute function tell()', name);
    end loop;
end $$;
"""
"""Has every row of the engine that is changed told, where that is asked for."""


def job(n: int) -> UUID:
    return UUID(f"01900000-0000-7000-8000-{n:012x}")


SAME = {"job_order_key": "job_order_number"}
"""The head of a line is the only row of the one and the first of the other: what was sampled decides between them."""

DONE, OWNED, DUE, OVERDUE, HELD_BACK = 777, 205_000, 230_000, 211_000, 249_001
USUAL = {
    "above": 1,
    "after": None,
    "ask": uuid4(),
    "backoff": [timedelta(seconds=10), timedelta(seconds=40)],
    "believable": datetime.now(UTC) + timedelta(days=1),
    "body": b"0",
    "bytes": 1,
    "cadence": Jsonb({}),
    "checkpoint": Jsonb({}),
    "claim_id": OWNED,
    "code": None,
    "conflict_key": f"parcel:{OWNED}",
    "counts": Jsonb({}),
    "details": Jsonb({}),
    "done": "DELIVERED",
    "early": True,
    "first_steps": Jsonb({"delivery": "PACK"}),
    "function": "recovery",
    "hand_over": True,
    "id": 10,
    "job_id": job(OWNED),
    "jobs": [job(n) for n in range(230_000, 230_010)],
    "keep": [],
    "key": "nightly7",
    "kind": "s3_object",
    "lasts": timedelta(days=7),
    "lease": timedelta(minutes=1),
    "left_state": "PACK",
    "length": timedelta(hours=1),
    "limit": 50,
    "locator": Jsonb({"key": "new"}),
    "next_due_at": datetime.now(UTC) + timedelta(days=1),
    "next_state": "SHIP",
    "numbers": [1] * 10,
    "order_key": None,
    "outage": False,
    "passed": [],
    "pause": timedelta(minutes=1),
    "paused": [f"paused{n}" for n in range(1, 6)],
    "pipeline": "delivery",
    "pipelines": ["delivery"],
    "principal": b"\0",
    "queue": "work",
    "queue_budget": timedelta(days=1),
    "records": 1,
    "refusal": None,
    "request": None,
    "requeued_as": job(DONE),
    "restores_attempts": False,
    "result": Jsonb({}),
    "retention": timedelta(days=30),
    "route": "POST /",
    "run_budget": timedelta(hours=6),
    "schedule": None,
    "state": None,
    "status": None,
    "stays_true": ["insured"],
    "subject": Jsonb({"name": "a"}),
    "thing": uuid4(),
    "total": None,
    "version": None,
    "waiting_for": None,
    "wakeup_lost": timedelta(minutes=30),
}
FAILURE = {"job_id": job(1_000_007)}
KEY = {"key": b"20000"}

# Where it isn't the usual owned job: whom the statement is about.
ABOUT = {
    "accept_job": {"conflict_key": "parcel:new", "order_key": "line"},
    "cancel_job": {"job_id": job(DUE)},
    "claim_job": {"job_id": job(DUE)},
    "discard_job": {"job_id": job(DONE)},
    "end_pause": {"pipelines": ["paused1"]},
    "fail_job": {"code": "internal_error"},
    "fail_unrecoverable_job": {"job_id": job(OVERDUE)},
    "find_failure": FAILURE,
    "find_purged_failure": {"job_id": job(777)},
    "lift_claims": {"above": 10**12},  # a sequence has no row that a trigger tells of: what it gives is looked at
    "list_failures": {"conflict_key": None},
    "lock_failure": FAILURE,
    "mark_requeued": FAILURE,
    "prune_events": {"retention": timedelta(days=40)},
    "prune_jobs": {"retention": timedelta(days=40)},
    "purge_failure": FAILURE,
    "read_back": {"kind": "claimed"},
    "recover_job": {"job_id": job(OVERDUE)},
    "retry_job": {"code": "internal_error"},
    "settle_key": KEY,
    "take_key": KEY,
    "take_over": {"thing": job(150_000), "job_id": job(300_000)},  # one that is left for hours, and a job without it
    "take_wake_up": {"job_id": job(230_000)},
    "set_pause": {"pipeline": "tour"},
}

# Ways of calling it that read other indexes.
OTHERWISE = {
    "list_failures": {"conflict_key": "parcel:7"},
    "recover_job": {"job_id": job(HELD_BACK)},
}
BESIDE = 20
"""For each row it is after so many may be read by all that runs for a statement: its functions, and the planner. Where
those are more than ten, four."""

SMALL = ("pause", "run")
"""Tables of a handful of rows, read whole."""

WITHIN = {"accept_job": "job_order_number"}
"""Read inside a function, engine.take_place, where a plan doesn't show it."""

# How many rows a statement is after, where it isn't one.
AFTER = {
    "count_past_bound": 3000,  # those that are
    "count_scheduled_jobs": 13,
    "delete_sent": 10,
    # Each of the 50,000 that are unfinished, twice: no index knows a pipeline, for one more would be written at each
    # transition; and nobody knows beforehand that a pause has held five and not all, so that they are joined by a hash.
    "end_pause": 25_010,
    "give_back_owed": 10,
    "list_events": 2,
    "list_failures": 50,
    "list_jobs": 50,
    "list_overdue_jobs": 500,
    "prune_events": 1000,
    "prune_jobs": 1000,
    "prune_keys": 1000,
    "take_owed": 10,
}

# What the statement changes, by table, where it is called as above: (inserted, updated, deleted).
CHANGES = {
    "accept_job": {"job": (1, 0, 0), "job_event": (1, 0, 0), "line": (0, 1, 0)},
    "advance_job": {"job": (0, 1, 0), "outbox": (0, 1, 0), "job_event": (1, 0, 0)},
    "cancel_job": {
        "job": (0, 0, 1),
        "outbox": (0, 0, 1),
        "failure": (1, 0, 0),
        "job_event": (1, 0, 0),
        "ledger": (0, 1, 0),
    },
    "claim_job": {"job": (0, 1, 0), "job_event": (1, 0, 0)},
    "claim_next_job": {"job": (0, 1, 0), "job_event": (1, 0, 0)},
    "delete_sent": {"outbox": (0, 0, 10)},
    "discard_job": {"ledger": (0, 1, 0)},
    "end_pause": {"pause": (0, 0, 1), "job": (0, 5, 0), "outbox": (0, 5, 0), "job_event": (5, 0, 0)},
    "give_back_owed": {"outbox": (0, 10, 0)},
    "prune_events": {"job_event": (0, 0, 1000)},
    "prune_jobs": {"job": (0, 0, 1000)},
    "prune_keys": {"idempotency": (0, 0, 1000)},
    "recover_job": {"job": (0, 1, 0), "outbox": (0, 1, 0), "job_event": (1, 0, 0)},
    "take_garbage": {"ledger": (0, 1, 0)},
    "take_owed": {"outbox": (0, 10, 0)},
    "take_wake_up": {"outbox": (0, 1, 0)},
}

# Whom a statement picks itself, where it takes some of many: rows that it gives, or of a table, by a column.
PICKED = {
    "claim_next_job": ("given", "id", [job(210_001)]),
    "end_pause": ("job", "id", [job(n) for n in range(245_001, 245_006)]),
    "list_overdue_jobs": ("given", "id", [job(n) for n in range(209_001, 209_501)]),
    "lift_claims": ("given", "next", [10**12 + 1]),
    "pick_due_schedule": ("given", "key", ["nightly1"]),
    "prune_events": ("given", "id", range(1, 1001)),
    "prune_jobs": ("given", "id", [job(n) for n in range(1, 1001)]),
    "prune_keys": ("given", "job_id", [job(n) for n in range(1, 1001)]),
    "take_garbage": ("given", "id", [10]),
    "take_owed": ("given", "job_id", [job(n) for n in range(200_001, 200_011)]),
}

PLANNERS = {
    "as it likes": (),
    "nested loops": (
        "enable_hashjoin = off",
        "enable_mergejoin = off",
        "enable_material = off",
        "enable_memoize = off",
    ),
    "hashes": ("enable_nestloop = off", "enable_mergejoin = off"),
    "merges": ("enable_nestloop = off", "enable_hashjoin = off"),
    "no index": ("enable_indexscan = off", "enable_indexonlyscan = off", "enable_bitmapscan = off"),
}
STATEMENTS = sorted(path.stem for path in (Path(chalicelib.engine.__file__).parent / "sql").glob("*.sql"))


def header(name: str) -> list[str]:
    """The indexes that a statement's header names."""
    [line] = [line for line in getattr(sql, name).splitlines() if line.startswith("-- index:")]
    named = line.removeprefix("-- index:").strip()
    return [] if named.startswith("none") else named.split(", ")


def parameters(name: str) -> dict[str, object]:
    return USUAL | ABOUT.get(name, {})


@pytest.fixture(scope="module")
def full(admin_dsn, bare_template):
    """A database of the size of some years, with its real clock; every test rolls back."""
    with (
        _database(admin_dsn, bare_template) as name,
        psycopg.connect(make_conninfo(admin_dsn, dbname=name), autocommit=True) as admin,
    ):
        admin.execute(FILL)
        admin.execute(TELL)
        admin.execute("vacuum analyze")
        yield admin


def rows_read(full) -> int:
    """By this transaction, in functions, too, where a plan doesn't show it."""
    [(number,)] = full.execute(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int from pg_stat_xact_user_tables"
        " where schemaname = 'engine' and relname <> all (%s)",
        [list(SMALL)],
    ).fetchall()
    return number


def nodes(plan):
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


@pytest.mark.parametrize("name", [name for name in STATEMENTS if header(name)])
def test_T12_a_statement_reads_its_indexes_and_few_rows(full, figures, name):
    used = {WITHIN.get(name)}
    for more in ({}, *([OTHERWISE[name]] if name in OTHERWISE else [])):
        with full.transaction(force_rollback=True):
            explain = "explain (analyze, timing off, format json) " + getattr(sql, name)
            before = rows_read(full)
            [([found],)] = full.execute(explain, parameters(name) | more).fetchall()
            read = rows_read(full) - before
        plan = [node for node in nodes(found["Plan"]) if node["Actual Loops"]]
        used |= {node.get("Index Name") for node in plan}
        used |= {index for node in plan for index in node.get("Conflict Arbiter Indexes", ())}
        touched = sum(
            node["Actual Loops"]
            * (
                node["Actual Rows"]
                + node.get("Rows Removed by Filter", 0)
                + node.get("Rows Removed by Index Recheck", 0)
            )
            for node in plan
            if "Scan" in node["Node Type"] and node.get("Relation Name", "pause") not in SMALL
        )
        after = AFTER.get(name, 1)
        assert touched <= 4 * after, json.dumps(found, indent=1)
        assert read <= (BESIDE if after <= 10 else 4) * after
    missed = [index for index in header(name) if not used & {index, SAME.get(index, index)}]
    told = f"{name}.sql's header names {', '.join(missed)}, which its plan doesn't read"
    assert not missed, f"{told}\n{json.dumps(found, indent=1)}"
    figures["statements"] = 1


def test_T12_what_a_function_reads_is_counted(full):
    with full.transaction(force_rollback=True):
        full.execute(function("ended", "where job_id = past.id\n", "where job_id::text = past.id::text\n"))
        before = rows_read(full)
        full.execute(sql.finish_job, parameters("finish_job"))
        assert rows_read(full) - before > 250_000


def changed(full, name: str, planner: str, more: dict[str, object]) -> list[list[object]]:
    """Every row that a statement changes, before and after, and each that it gives, where the planner is held so."""
    with full.transaction(force_rollback=True), full.cursor(row_factory=dict_row) as cursor:
        for setting in ("proof.telling = on", *PLANNERS[planner]):
            cursor.execute(f"set local {setting}")
        cursor.execute(getattr(sql, name), parameters(name) | more)
        rows = [["given", None, row] for row in (cursor.fetchall() if cursor.description else [])]
        rows += [list(row.values()) for row in cursor.execute("select * from told").fetchall()]
    return sorted(([table, known(before), known(after)] for table, before, after in rows), key=json.dumps)


def known(row: dict[str, object] | None) -> dict[str, object] | None:
    """A row without what the clock, a sequence or chance has put there."""
    return row and {
        column: "-"
        if isinstance(value, float)
        or CHANCE.match(str(value))
        or (column in ("id", "claim_id", "fence") and isinstance(value, int) and value > FILLED)
        else json.loads(json.dumps(value, default=str))
        for column, value in row.items()
    }


@pytest.mark.parametrize("name", STATEMENTS)
def test_T12_whatever_the_plan_the_rows_asked_for_are_changed_and_no_others(full, figures, name):
    """Elsewhere a LIMIT under a nested loop was run again for each row and took more than its ten: hence the CTEs."""
    for more in ({}, *([OTHERWISE[name]] if name in OTHERWISE else [])):
        asked = changed(full, name, "as it likes", more)
        if name in CHANGES and not more:
            ways = [(table, (not before, bool(before and after), not after)) for table, before, after in asked]
            numbers = {table: (0, 0, 0) for table, _ in ways if table != "given"}
            for table in numbers:
                numbers[table] = tuple(sum(way) for way in zip(*(way for of, way in ways if of == table), strict=True))
            assert numbers == CHANGES[name]
        if name in PICKED:
            table, column, keys = PICKED[name]
            assert sorted(str(after[column]) for of, _, after in asked if of == table) == sorted(map(str, keys))
        for planner in PLANNERS:
            assert changed(full, name, planner, more) == asked, planner
            figures["forced plans"] = figures.get("forced plans", 0) + 1
