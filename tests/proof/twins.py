"""Engines that are broken on purpose, one promise each: the proof must catch every one, or it proves nothing."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from chalicelib.engine import Refusal, keeping, worker
from chalicelib.engine.cadence import Cadence
from chalicelib.engine.lease import Leased, Surroundings, sql


@dataclass(frozen=True)
class Twin:
    """What is broken, the invariant of docs/invariants.md it breaks, and the check that catches it."""

    breaks: str
    caught_by: str  # "stateful", or the name of an interleaved pair or of a story with crash points
    statements: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    schema: tuple[str, str] | None = None  # (break, mend)
    python: Callable[[pytest.MonkeyPatch], None] | None = None

    @contextmanager
    def installed(self, admin: "psycopg.Connection[Any]") -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            for name, changes in self.statements.items():
                text = getattr(sql, name)
                for old, new in changes:
                    assert old in text, f"{name} has no {old!r} any more: the twin is to be written anew"
                    text = text.replace(old, new)
                patch.setitem(sql._texts, name, text)
            if self.python:
                self.python(patch)
            if self.schema:
                admin.execute(self.schema[0])
            try:
                yield
            finally:
                if self.schema:
                    admin.execute(self.schema[1])


FENCE = "   and claim_id = %(claim_id)s\n"
ALIVE = "   and locked_until > engine.clock()\n"
COUNTED = "attempts     = job.attempts + (job.state = 'REQUESTED')::int"
UNCOUNTED = "attempts     = job.attempts"

ORDER_KEY = Path("chalicelib/schema/0006_order_key.sql").read_text()


def function(name: str, old: str = "", new: str = "") -> str:
    """A function of the migration, broken or as it is."""
    text = (
        "create or replace function engine."
        + ORDER_KEY.split(f"create function engine.{name}")[1].split("$$;")[0]
        + "$$"
    )
    text = text.replace("function engine.", f"function engine.{name}", 1)
    assert old in text, f"{name} has no {old!r} any more: the twin is to be written anew"
    return text.replace(old, new)


NEXT_CLAIM = "create or replace function engine.next_claim() returns bigint language sql volatile return {}"


def cursor_moved_before_the_job(patch: pytest.MonkeyPatch) -> None:
    def catch_up(around: Surroundings, start: keeping.Starter, counts: Any) -> None:
        passed: list[str] = []
        while True:
            with around.db.transaction() as tx:
                tx.run(sql.lock_catch_up)
                due = tx.one(sql.pick_due_schedule, passed=passed)
                if due is None or tx.run(sql.count_scheduled_jobs)[0]["active"] >= around.settings.catch_up_cap:
                    return
                passed.append(due["key"])
                following = Cadence(**due["cadence"]).next_after(max(due["next_due_at"], due["now"]))
                tx.run(sql.move_schedule, key=due["key"], next_due_at=following, job_id=None, refusal=None)
            with around.db.transaction() as tx:
                try:
                    start(tx, due["pipeline"], due["subject"], due["key"])
                except Refusal as error:
                    refusal = "update engine.schedule set last_refusal = %(code)s where key = %(key)s"
                    tx.run(refusal, key=due["key"], code=error.code)

    patch.setattr(keeping, "catch_up", catch_up)


def asks_named_after_the_invocation(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worker, "uuid4", lambda: UUID(int=7))


def a_lost_reply_is_a_lost_lease(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leased, "_arrived", lambda self, kind, state=None: None)


def a_lost_ask_is_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Surroundings, "insist", lambda self, attempt, arrived=lambda: None: attempt())


TWINS = {
    "heartbeat without fence": Twin("3", "stateful", {"extend_lease": [(FENCE, "")]}),
    "heartbeat after the lease's end": Twin("3", "stateful", {"extend_lease": [(ALIVE, "")]}),
    "finish without fence": Twin("3", "stateful", {"finish_job": [("and claim_id = %(claim_id)s", "")]}),
    "checkpoint without fence": Twin("3", "stateful", {"save_checkpoint": [(FENCE, "")]}),
    "failure without fence": Twin("3", "stateful", {"fail_job": [("and claim_id = %(claim_id)s", "")]}),
    "ledger without FOR KEY SHARE": Twin("3", "ledger / recover", {"note_in_ledger": [("for key share", "")]}),
    "a finish that doesn't hold its job": Twin("3", "hold / recover", {"hold_job": [("for key share", "")]}),
    "a claim that waits for no lock": Twin(
        "2, 3", "claim / claim", {"claim_job": [("for update of job\n      skip locked", "")]}
    ),
    "fences that come again": Twin(
        "4",
        "stateful",
        schema=(
            NEXT_CLAIM.format("(select coalesce(max(claim_id), 0) + 1 from engine.job)"),
            NEXT_CLAIM.format("nextval('engine.claim_id')"),
        ),
    ),
    "asks named after the invocation": Twin("5", "stateful", python=asks_named_after_the_invocation),
    "a lost reply taken for a lost lease": Twin("5", "a_publication", python=a_lost_reply_is_a_lost_lease),
    "a lost ask that is not repeated": Twin("5", "a_publication", python=a_lost_ask_is_not_repeated),
    "an attempt counted at its end": Twin(
        "6",
        "a_lost_worker",
        {
            "claim_job": [(COUNTED, UNCOUNTED)],
            "claim_next_job": [(COUNTED, UNCOUNTED)],
            "retry_job": [("set state        = 'REQUESTED'", "set attempts = attempts + 1, state = 'REQUESTED'")],
        },
    ),
    "recovery without a cap on attempts": Twin(
        "6",
        "a_lost_worker",
        {"recover_job": [("when claim_id is not null and attempts >= 3       then 'attempts_exhausted'", "")]},
    ),
    "recovery that overlooks lost wake-ups": Twin(
        "7", "stateful", {"list_overdue_jobs": [("locked_until <= (select engine.clock())", "false")]}
    ),
    "a claim that overlooks a pause": Twin(
        "7",
        "stateful",
        {"claim_job": [("and not exists (select from engine.pause where pipeline in (job.pipeline, '*'))", "")]},
    ),
    "payload kept at failure": Twin(
        "8",
        "a_failure",
        {
            "fail_job": [
                ("jsonb_build_object('step', state) ||", "jsonb_build_object('step', state, 'sent', request) ||")
            ]
        },
    ),
    "payload kept at the finish": Twin("8", "stateful", {"finish_job": [("request         = null,", "")]}),
    "cursor moved before the job": Twin("11", "a_schedule_and_a_pause", python=cursor_moved_before_the_job),
    "the cap counted without its lock": Twin(
        "11", "catch-up / catch-up, one place left", {"lock_catch_up": [("for update skip locked", "")]}
    ),
    "a recovery that trusts its list": Twin(
        "11", "recover / recover and claim", {"recover_job": [("       and locked_until <= engine.clock()\n", "")]}
    ),
    "a newer wake-up goes with the older": Twin(
        "outbox", "relay / wait", {"delete_sent": [("and outbox.number = sent.number", "")]}
    ),
    "a wait that owes no wake-up": Twin(
        "outbox",
        "a_long_way",
        {
            "wait_job": [
                (
                    "excluded.send_at, number = outbox.number + 1\n",
                    "excluded.send_at, number = outbox.number + 1\n where false\n",
                ),
                ("from job\n        on conflict", "from job where false\n        on conflict"),
            ]
        },
    ),
    "a claim before its time": Twin("1", "stateful", {"claim_job": [("and run_at <= (select now from clock)", "")]}),
    "a graph left by a failed job": Twin(
        "ledger", "a_failure", {"fail_job": [("engine.ended(past, null, ", "engine.ended(past, '{}', ")]}
    ),
    "garbage removed once": Twin(
        "ledger",
        "a_cleanup",
        python=lambda patch: patch.setitem(sql._texts, "mark_removed", sql.forget_garbage),
    ),
    "a place taken without its lock": Twin(
        "order",
        "in line: accept / finish",
        schema=(
            function(
                "take_place",
                """insert into engine.line (order_key, last_number) values (key, 1)
        on conflict (order_key) do update set last_number = line.last_number + 1
    returning last_number into number;""",
                "select coalesce(max(job.order_number), 0) + 1 into number from engine.job where job.order_key = key;",
            ),
            function("take_place"),
        ),
    ),
    "an end that releases nobody": Twin(
        "order",
        "in line: finish / claim any",
        schema=(
            function("release_next", "perform from engine.line", "return null; perform from engine.line"),
            function("release_next"),
        ),
    ),
    "a release that passes over whoever is locked": Twin(
        "order",
        "in line: finish / recover what is held back",
        schema=(
            function("release_next", "for update)", "for update skip locked)"),
            function("release_next"),
        ),
    ),
    "recovery that fails what is held back": Twin(
        "7, order", "in line: recover / recover", {"recover_job": [(" and not held_back then", " then")]}
    ),
    "a follow-up forgotten at the cancellation": Twin(
        "coalescing",
        "a_follow_up",
        {
            "cancel_job": [
                (
                    "engine.ended(past, null, ",
                    "engine.ended(jsonb_populate_record(past, '{\"follow_up\": null}'), null, ",
                )
            ]
        },
    ),
    "a cancellation forgotten by recovery": Twin(
        "cancel",
        "cancel / recover",
        {
            "recover_job": [
                ("when cancel_requested_at is not null              then 'cancelled'\n                when", "when")
            ]
        },
    ),
    "a wait that overlooks its cancellation": Twin(
        "cancel", "cancel / wait", {"wait_job": [("       and cancel_requested_at is null\n", "")]}
    ),
    "retention that takes a version's record": Twin(
        "retention", "a_cleanup", {"prune_jobs": [("       and version is null\n", "")]}
    ),
}
