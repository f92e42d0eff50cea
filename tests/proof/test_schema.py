"""What the schema refuses by itself, whatever the statements do: each CHECK and each unique index, tried once."""

import psycopg
import pytest

from tests.toy import Parcel

UNFINISHED = "update engine.job set {} where finished_at is null"
FINISHED = "update engine.job set {} where finished_at is not null"

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


def test_no_constraint_is_left_out(world):
    rows = world.watch._connection.execute(
        "select conname as name from pg_constraint where connamespace = 'engine'::regnamespace and contype = 'c'"
        " union select indexrelid::regclass::text from pg_index join pg_class on pg_class.oid = indrelid"
        " where relnamespace = 'engine'::regnamespace and indisunique and not indisprimary"
    ).fetchall()
    assert {row["name"].removeprefix("engine.") for row in rows} == REFUSED.keys()
