"""What the schema refuses by itself, whatever the statements do: each CHECK and each unique index, tried once."""

import re
from itertools import product

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.toy import Parcel

SCHEMAS = ["engine", "dataset", "access", "refresh", "store", "staging"]
UNFINISHED = "update engine.job set {} where finished_at is null"
FINISHED = "update engine.job set {} where finished_at is not null"
DATASET = "insert into dataset.dataset (id, last_version, current_version, deleted_at) values {}"
CONNECTION = "insert into dataset.connection (name, secret, max_jobs, statement_timeout) values {}"
SOURCE = "insert into dataset.source (name, revision, connection, relation, query, file, store) values {}"
VERSION = (
    "insert into dataset.version (dataset_id, number, withdrawn_by, withdrawn_at, job_id, fence, definition_revision,"
    " source_name, source_revision, issued_at, records, files, documents, report, triples)"
    " select 'a', {}, repeat('0', 32)::uuid, 1, 1, 'a', 1, now(), 1, '[]', '{{}}', '{{}}', 1"
)
LOAD = (
    "insert into dataset.load (job_id, dataset_id, mode, rows, inserted, updated, deleted) values (uuidv7(), 'a', {})"
)
AUDIT = (
    "insert into refresh.audit (job_id, contract, manifest, target, outcome, code, inserted, fence, started_at,"
    " finished_at) values (uuidv7(), 'a', 1, 'a/a.a', {}, 1, now(), now())"
)

REFUSED = {
    "unfinished_has_its_times": UNFINISHED.format("run_at = null"),
    "act_by_is_not_after_the_deadline": UNFINISHED.format("locked_until = deadline_at + interval '1 s'"),
    "claim_has_an_owner": UNFINISHED.format("claim_id = 1, state = 'PACK'"),
    "finished_keeps_its_fence": FINISHED.format("claim_id = null"),
    "attempts_are_capped": UNFINISHED.format("state = 'PACK', attempts = 4"),
    "requested_has_an_attempt_left": UNFINISHED.format("attempts = 3"),
    "requested_is_unowned": UNFINISHED.format("claim_id = 1, lease_owner = uuidv7()"),
    "finished_has_no_payload": FINISHED.format("request = '{}'"),
    "waiting_has_a_since": UNFINISHED.format("waiting_for = 'export'"),
    "follow_up_has_a_conflict_key": UNFINISHED.format("follow_up = '{}', conflict_key = null"),
    "place_in_a_line": UNFINISHED.format("order_key = 'a'"),
    "held_back_in_a_line": UNFINISHED.format("held_back = true"),
    "held_back_has_not_begun": UNFINISHED.format(
        "order_key = id::text, order_number = 1, held_back = true, state = 'PACK'"
    ),
    "queue_is_known": UNFINISHED.format("queue = 'other'"),
    "failure_code_is_a_word": "update engine.failure set code = 'What Python said: x'",
    "ledger_status_is_known": "update engine.ledger set status = 'lost'",
    "kept_is_kept_by_a_step": "update engine.ledger set status = 'kept'",
    "garbage_is_tried": "update engine.ledger set status = 'garbage'",
    "pause_ends_within_seven_days": "update engine.pause set until = since + interval '8 days'",
    # Two unfinished jobs of one conflict key; an ask that holds two claims; a thing noted twice.
    "job_conflict_key": UNFINISHED.format("conflict_key = 'one for all'"),
    "job_lease_owner": UNFINISHED.format("claim_id = 1, lease_owner = '{}', state = 'PACK'").format("0" * 32),
    "job_order_key": UNFINISHED.format("order_key = 'a', order_number = ascii(subject ->> 'name')"),
    "job_order_number": UNFINISHED.format("order_key = 'a', order_number = 1, held_back = true"),
    "ledger_notes_a_thing_once": "insert into engine.ledger (job_id, claim_id, kind, locator, noted_at)"
    " select job_id, claim_id, kind, locator, noted_at from engine.ledger",
    # What others than the engine keep. A CHECK looks before a foreign key does.
    "dataset_id_is_a_name": DATASET.format("('A', 0, null, null)"),
    "current_version_was_given": DATASET.format("('a', 1, 2, null)"),
    "deleted_has_no_current_version": DATASET.format("('a', 1, 1, now())"),
    "definition_revisions_count_from_one": "insert into dataset.definition (dataset_id, revision, body, etag)"
    " values ('a', 0, '{}', '')",
    "connection_name_is_a_name": CONNECTION.format("('A', 'LEASEWAY_SECRET_A', 1, null)"),
    "secret_is_the_name_of_one": CONNECTION.format("('a', 'postgresql://a:secret@host/a', 1, null)"),
    "max_jobs_are_few": CONNECTION.format("('a', 'LEASEWAY_SECRET_A', 101, null)"),
    "statement_timeout_is_at_most_a_day": CONNECTION.format("('a', 'LEASEWAY_SECRET_A', 1, 86401)"),
    "source_name_is_a_name": SOURCE.format("('A', 1, 'a', 'a', null, null, null)"),
    "source_is_one_thing": SOURCE.format("('a', 1, 'a', 'a', 'select 1', null, null)"),
    "source_has_a_connection_unless_it_is_here": SOURCE.format("('a', 1, null, 'a', null, null, null)"),
    "file_says_what_it_is": SOURCE.format("""('a', 1, null, null, null, '{"key": "a"}', null)"""),
    "store_is_a_datasets": SOURCE.format("('a', 1, null, null, null, null, 'A')"),
    "version_numbers_count_from_one": VERSION.format("0, null, null"),
    "withdrawn_by_whom_and_when": VERSION.format("1, uuidv7(), null"),
    "version_is_made_by_one_job": VERSION.format("number, null, null") + " from generate_series(1, 2) as number",
    "export_has_a_job_unless_it_is_deleted": "insert into dataset.export (key, fence) values (uuidv7(), 1)",
    "load_mode_is_known": LOAD.format("'append', 1, 1, 0, 0"),
    "load_counts_its_rows": LOAD.format("'upsert', 1, 1, 1, 0"),
    "upsert_deletes_nothing": LOAD.format("'upsert', 1, 1, 0, 1"),
    "upload_holds_something": "insert into dataset.upload (id, dataset_id, owner, bytes, expires_at)"
    " values (uuidv7(), 'a', '', 0, now())",
    "catalog_is_one": "insert into dataset.catalog (is_the_one, body, applied_at) values (false, '{}', now())",
    "token_role_is_known": "insert into access.token (principal, role, hash) values ('a', 'owner', '')",
    "token_hash_is_unique": "insert into access.token (principal, role, hash)"
    " select 'a', 'reader', 'a' from generate_series(1, 2)",
    "manifest_versions_count_from_one": "insert into refresh.manifest values (0, '{}', repeat('0', 64), now())",
    "manifest_hash_is_a_sha256": "insert into refresh.manifest values (1, '{}', 'secret', now())",
    "outcome_is_known": AUDIT.format("'lost', 'internal_error', 0"),
    "only_refreshed_has_no_code": AUDIT.format("'failed', null, 0"),
    "only_refreshed_changed_rows": AUDIT.format("'failed', 'internal_error', 1"),
    "switch_is_one": "insert into refresh.switch (is_the_one) values (false)",
    "enabled_has_a_way_back": "insert into refresh.switch (enabled, rollback) values (true, 'the last one')",
}


@pytest.fixture
def full(world):
    """A row in each table, and two unfinished jobs."""
    world.reset()
    world.engine.accept("delivery", Parcel(name="done"))
    leased = world.worker.work_on("work", [], lambda: 300)
    assert [each.outcome for each in leased] == ["finished"]
    for name in ("a", "b"):
        world.engine.accept("delivery", Parcel(name=name))
    world.engine.cancel(world.engine.accept("delivery", Parcel(name="c")).job.id)
    world.engine.pause("tour")
    admin = world.watch._connection
    admin.execute(
        "insert into engine.ledger (job_id, claim_id, kind, locator, noted_at)"
        " select id, 1, 's3_object', '{}', engine.clock() from engine.job where finished_at is null limit 1"
    )
    return admin


@pytest.mark.parametrize("constraint", REFUSED)
def test_the_schema_refuses(full, figures, constraint):
    with pytest.raises(psycopg.IntegrityError) as refused, full.transaction():
        full.execute(REFUSED[constraint])
    assert refused.value.diag.constraint_name == constraint
    figures["constraints"] = 1


# A CHECK that isn't false lets a row pass. Where it can be unknown, for a column is null, that is what it means.
MEANT = {
    "act_by_is_not_after_the_deadline": "a finished row has neither; unfinished_has_its_times sees to the rest",
    "current_version_was_given": "a dataset without a version",
    "statement_timeout_is_at_most_a_day": "the login's own",
    "file_says_what_it_is": "a source that is no file",
    "store_is_a_datasets": "a source that is no store",
}

CHECKS = """
select conname as name
     , conrelid::regclass::text as table
     , pg_get_expr(conbin, conrelid) as says
     , (select json_agg(json_build_array(attname, format_type(atttypid, null), attnotnull))
          from pg_attribute
         where attrelid = conrelid
           and attnum = any (conkey)) as columns
  from pg_constraint
 where contype = 'c'
   and connamespace::regnamespace::text = any (%(schemas)s)
"""
SAMPLES = {
    "boolean": [True, False],
    "integer": [0, 1],
    "bigint": [0, 1],
    "jsonb": [{}],
    "uuid": ["0" * 32],
    "timestamp with time zone": ["2026-03-02"],
}


def test_a_check_lets_a_null_pass_where_that_is_meant_and_nowhere_else(world):
    unknown = set()
    connection = world.watch._connection
    for check in connection.execute(CHECKS, {"schemas": SCHEMAS}).fetchall():
        texts = ["a", *re.findall("'([^']*)'", check["says"])]
        values = [
            [*SAMPLES.get(kind, texts), *([] if never_null else [None])] for _, kind, never_null in check["columns"]
        ]
        names = [name for name, _, _ in check["columns"]]
        rows = Jsonb([dict(zip(names, row, strict=True)) for row in product(*values)])
        found = connection.execute(
            f"select bool_or(({check['says']}) is null) as unknown"
            f" from jsonb_populate_recordset(null::{check['table']}, %(rows)s)",
            {"rows": rows},
        ).fetchone()
        if found["unknown"]:
            unknown.add(check["name"])
    assert unknown == MEANT.keys()


def test_no_constraint_is_left_out(world):
    rows = world.watch._connection.execute(
        "select conname as name from pg_constraint where connamespace::regnamespace::text = any (%(schemas)s)"
        " and contype = 'c' union select relname from pg_index join pg_class on pg_class.oid = indexrelid"
        " where relnamespace::regnamespace::text = any (%(schemas)s) and indisunique and not indisprimary",
        {"schemas": SCHEMAS},
    ).fetchall()
    assert {row["name"] for row in rows} == REFUSED.keys()
