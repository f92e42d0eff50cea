"""Engines that are broken on purpose, one promise each: the proof must catch every one, or it proves nothing."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from chalicelib import pipelines
from chalicelib.datasets import registry
from chalicelib.db import DatabaseAway
from chalicelib.engine import LeaseLost, LedgerRow, Outcome, Refusal, keeping, worker
from chalicelib.engine.cadence import Cadence
from chalicelib.engine.lease import Leased, Surroundings, sql
from chalicelib.engine.model import Counts
from chalicelib.pipelines import entries
from chalicelib.pipelines.load import steps as load_steps
from chalicelib.pipelines.publication import steps as publication_steps
from tests.proof.mutate import FUNCTION, left_by_the_migrations


@dataclass(frozen=True)
class Twin:
    """What is broken, the invariant of docs/invariants.md it breaks, and the check that catches it."""

    breaks: str
    caught_by: str  # "stateful", or the name of an interleaved pair, of a story with crash points or of two commits
    says: str  # the check's words, or the constraint's name
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
DEAF = ("cancel_requested_at is not null", "false")
UNFENCED = [(FENCE.strip(), ""), ("set state", "set claim_id = %(claim_id)s, state")]
COUNTED = "attempts     = job.attempts + (job.state = 'REQUESTED')::int"
UNCOUNTED = "attempts     = job.attempts"

FUNCTIONS = left_by_the_migrations(FUNCTION)


def function(name: str, old: str = "", new: str = "") -> str:
    """A function of the engine, broken or as it is."""
    text = FUNCTIONS[f"engine.{name}"].replace("create function", "create or replace function", 1)
    assert old in text, f"{name} has no {old!r} any more: the twin is to be written anew"
    return text.replace(old, new)


def broken(name: str, old: str, new: str) -> tuple[str, str]:
    """How a function of the engine is broken, and mended."""
    return function(name, old, new), function(name)


NEXT_CLAIM = "create or replace function engine.next_claim() returns bigint language sql volatile return {}"


def cursor_moved_before_the_job(patch: pytest.MonkeyPatch) -> None:
    def catch_up(around: Surroundings, start: keeping.Starter, counts: Any) -> None:
        passed: list[str] = []
        while True:
            with around.db.transaction() as tx:
                tx.run(sql.lock_catch_up)
                due = tx.one(sql.pick_due_schedule, passed=passed, paused=[])
                active = tx.run(sql.count_scheduled_jobs, paused=[])[0]["active"]
                if due is None or active >= around.settings.catch_up_cap:
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


def a_database_that_is_away_fails_the_job(patch: pytest.MonkeyPatch) -> None:
    step = worker._step

    def failing(leased: Leased[Any], *around: Any) -> Any:
        try:
            return step(leased, *around)
        except DatabaseAway:
            leased.fail("internal_error", {})
            return Outcome.FAILED

    patch.setattr(worker, "_step", failing)


def a_lost_ask_is_not_repeated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Surroundings, "insist", lambda self, attempt, arrived=lambda: None: attempt())


def an_exception_s_text_among_the_details(patch: pytest.MonkeyPatch) -> None:
    again = worker._again

    def telling(leased: Leased[Any], code: str, details: dict[str, Any]) -> Any:
        return again(leased, code, details | {"said": str(sys.exception())})

    patch.setattr(worker, "_again", telling)


def a_catalogue_that_is_not_read_back(patch: pytest.MonkeyPatch) -> None:
    def replace_entry(job: Leased[Any], tx: Any, graph: str, ntriples: bytes, triples: int, newest: int) -> bool:
        entries.graph_store().replace(graph, ntriples, job.claim_id, newest)
        return True

    patch.setattr(publication_steps, "replace_entry", replace_entry)


def of_a_dataset(name: str, old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    """A statement of the datasets', broken."""
    text = getattr(registry.SQL, name)
    assert old in text, f"{name} has no {old!r} any more: the twin is to be written anew"
    return lambda patch: patch.setitem(registry.SQL._texts, name, text.replace(old, new))


def a_publication_that_waits_for_no_lock(patch: pytest.MonkeyPatch) -> None:
    """Cleanup does: of both each one's error would be a violation of its own, and either may come first."""
    at_once = registry.SQL.lock_dataset.replace("for no key update", "for no key update nowait")
    locks = {"lock_dataset": lambda tx, dataset: tx.one(at_once, dataset=dataset)}
    patch.setattr(publication_steps, "registry", SimpleNamespace(**vars(registry) | locks))


def an_end_that_is_looked_at_again(patch: pytest.MonkeyPatch) -> None:
    transaction = Leased.transaction

    @contextmanager
    def twice(leased: Leased[Any]) -> Iterator[Any]:
        with transaction(leased) as tx:
            yield tx
        leased.heartbeat(force=True)

    patch.setattr(Leased, "transaction", twice)


def a_load_in_two_transactions(patch: pytest.MonkeyPatch) -> None:
    merged = load_steps._merged

    def early(tx: Any, *about: Any) -> Any:
        done = merged(tx, *about)
        tx.run("commit")
        tx.run("begin")
        return done

    patch.setattr(load_steps, "_merged", early)


def loads_without_a_line(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(pipelines.PIPELINES, "load", replace(pipelines.PIPELINES["load"], order_key=None))


def a_start_that_nobody_counts(patch: pytest.MonkeyPatch) -> None:
    start_one = keeping._start_one
    patch.setattr(keeping, "_start_one", lambda *around: start_one(*around[:-1], Counts()))


def nothing_due_is_a_database_that_is_away(patch: pytest.MonkeyPatch) -> None:
    claim_next = worker._claim_next

    def away(*asked: Any) -> Any:
        if row := claim_next(*asked):
            return row
        raise DatabaseAway

    patch.setattr(worker, "_claim_next", away)


def a_completion_that_is_put_off(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Leased, "complete", lambda leased, keep, result: None)


def a_lost_lease_is_a_failed_attempt(patch: pytest.MonkeyPatch) -> None:
    step = worker._step

    def failing(*around: Any) -> Any:
        try:
            return step(*around)
        except LeaseLost:
            return Outcome.RETRYING

    patch.setattr(worker, "_step", failing)


def cleanup_that_takes_what_is_kept(patch: pytest.MonkeyPatch) -> None:
    clean_up = keeping.clean_up

    def greedy(around: Surroundings, removers: Any, counts: Any) -> None:
        columns = "id, job_id, claim_id, kind, locator, tries"
        for row in around.db.run(f"select {columns} from engine.ledger where status = 'kept'"):
            worker.load(removers[row["kind"]])(LedgerRow(**row))
        clean_up(around, removers, counts)

    patch.setattr(keeping, "clean_up", greedy)


TWINS = {
    "heartbeat without fence": Twin(
        "3", "stateful", "a stale owner that does beat hears nothing of it", {"extend_lease": [(FENCE, ""), DEAF]}
    ),
    "heartbeat after the lease's end": Twin(
        "3",
        "stateful",
        "a stale owner that does beat hears nothing of it",
        {"extend_lease": [(ALIVE, "   and finished_at is null\n"), DEAF]},
    ),
    "finish without fence": Twin(
        "3",
        "stateful",
        "a stale owner that does complete hears nothing of it",
        {"finish_job": UNFENCED},
    ),
    "checkpoint without fence": Twin(
        "3", "stateful", "a stale owner that does save hears nothing of it", {"save_checkpoint": [(FENCE, "")]}
    ),
    "failure without fence": Twin(
        "3",
        "stateful",
        "a stale owner that does fail hears nothing of it",
        {"fail_job": [("and claim_id = %(claim_id)s", "")]},
    ),
    "ledger without FOR KEY SHARE": Twin(
        "3", "ledger / recover", "a stale owner has written:", {"note_in_ledger": [("for key share", "")]}
    ),
    "a finish that doesn't hold its job": Twin(
        "3", "hold / recover", "it was taken away while it was held:", {"hold_job": [("for key share", "")]}
    ),
    "a claim that waits for no lock": Twin(
        "2, 3",
        "claim / claim",
        "a newer owner has an older fence (invariant 4):",
        {"claim_job": [("for update of job\n      skip locked", "")]},
    ),
    "fences that come again": Twin(
        "4",
        "a_failure",
        "a fence was given twice (invariant 4):",
        schema=(
            NEXT_CLAIM.format("(select coalesce(max(claim_id), 0) + 1 from engine.job)"),
            NEXT_CLAIM.format("nextval('engine.claim_id')"),
        ),
    ),
    "asks named after the invocation": Twin(
        "5", "stateful", "two invocations share a claim (invariant 5):", python=asks_named_after_the_invocation
    ),
    "a lost reply taken for a lost lease": Twin(
        "5", "a_publication", "a lost message was taken for a lost lease", python=a_lost_reply_is_a_lost_lease
    ),
    "an owner that doesn't read back": Twin(
        "5", "stateful", "an owner was told that its lease is lost:", python=a_lost_reply_is_a_lost_lease
    ),
    "a database that is away taken for a failure": Twin(
        "5", "a_publication", "a story ended otherwise:", python=a_database_that_is_away_fails_the_job
    ),
    "a lost ask that is not repeated": Twin(
        "5", "a_publication", "a lost message has cost an attempt:", python=a_lost_ask_is_not_repeated
    ),
    "an attempt counted at its end": Twin(
        "6",
        "a_lost_worker",
        "an attempt was not counted at its claim:",
        {
            "claim_job": [(COUNTED, UNCOUNTED)],
            "claim_next_job": [(COUNTED, UNCOUNTED)],
            "retry_job": [("set state        = 'REQUESTED'", "set attempts = attempts + 1, state = 'REQUESTED'")],
        },
    ),
    "recovery without a cap on attempts": Twin(
        "6",
        "a_lost_worker",
        "recovery gave up on a row",
        {"recover_job": [("when claim_id is not null and attempts >= 3       then 'attempts_exhausted'", "")]},
    ),
    "recovery that overlooks lost wake-ups": Twin(
        "7",
        "stateful",
        "a job is past its bound after recovery:",
        {"list_overdue_jobs": [("locked_until <= (select engine.clock())", "false")]},
    ),
    "a claim that overlooks a pause": Twin(
        "7",
        "stateful",
        "claimed during a pause:",
        {"claim_job": [("and not exists (select from engine.pause where pipeline in (job.pipeline, '*'))", "")]},
    ),
    "payload kept at failure": Twin(
        "8",
        "a_failure",
        "what is private stands outside its job's row (invariants 8, 9):",
        {
            "fail_job": [
                ("jsonb_build_object('step', state) ||", "jsonb_build_object('step', state, 'sent', request) ||")
            ]
        },
    ),
    "payload kept at the finish": Twin(
        "8", "stateful", "finished_has_no_payload", {"finish_job": [("request         = null,", "")]}
    ),
    "cursor moved before the job": Twin(
        "11", "a_schedule_and_a_pause", "a slot went by without a job:", python=cursor_moved_before_the_job
    ),
    "the cap counted without its lock": Twin(
        "11",
        "catch-up / catch-up, one place left",
        "more scheduled jobs are active than the cap allows:",
        {"lock_catch_up": [("for update skip locked", "")]},
    ),
    "a catch-up that overlooks a pause": Twin(
        "11",
        "catch-up / catch-up, while a pause fills the cap",
        "a schedule was started during a pause:",
        {"pick_due_schedule": [("   and not %(paused)s && array[pipeline, '*']\n", "")]},
    ),
    "a cap that a pause fills": Twin(
        "11",
        "catch-up / catch-up, while a pause fills the cap",
        "a pause has stopped another pipeline's schedule:",
        {"count_scheduled_jobs": [(" or not %(paused)s && array[pipeline, '*']", " or true")]},
    ),
    "a recovery that trusts its list": Twin(
        "11",
        "claim / recover, a lost wake-up",
        "a claim that was given doesn't stand:",
        {"recover_job": [("       and locked_until <= engine.clock()\n", "")]},
    ),
    "a newer wake-up goes with the older": Twin(
        "outbox",
        "relay / wait",
        "a wake-up was forgotten, not sent:",
        {"delete_sent": [("and outbox.number = sent.number", "")]},
    ),
    "a wait that owes no wake-up": Twin(
        "outbox",
        "a_long_way",
        "a wake-up was forgotten, not sent:",
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
    "a claim before its time": Twin(
        "1", "stateful", "claimed before it was due:", {"claim_job": [("and run_at <= (select now from clock)", "")]}
    ),
    "a graph left by a failed job": Twin(
        "ledger",
        "a_failure",
        "the ledger isn't as its job's end is:",
        {"fail_job": [("engine.ended(past, null, ", "engine.ended(past, '{}', ")]},
    ),
    "garbage removed once": Twin(
        "ledger",
        "a_cleanup",
        "a ledger row is gone before it was removed twice:",
        python=lambda patch: patch.setitem(sql._texts, "mark_removed", sql.forget_garbage),
    ),
    "a place taken without its lock": Twin(
        "order",
        "in line: accept / finish",
        "nobody is before it, and it is held back:",
        schema=broken(
            "take_place",
            """insert into engine.line (order_key, last_number) values (key, 1)
        on conflict (order_key) do update set last_number = line.last_number + 1
    returning last_number into number;""",
            "select coalesce(max(job.order_number), 0) + 1 into number from engine.job where job.order_key = key;",
        ),
    ),
    "an end that releases nobody": Twin(
        "order",
        "in line: finish / claim any",
        "nobody is before it, and it is held back:",
        schema=(
            function("release_next", "perform from engine.line", "return null; perform from engine.line"),
            function("release_next"),
        ),
    ),
    "a release that passes over whoever is locked": Twin(
        "order",
        "in line: finish / recover what is held back",
        "nobody is before it, and it is held back:",
        schema=(
            function("release_next", "for update)", "for update skip locked)"),
            function("release_next"),
        ),
    ),
    "recovery that fails what is held back": Twin(
        "7, order",
        "in line: recover / recover",
        "who waits for its turn has failed:",
        {"recover_job": [(" and not held_back then", " then")]},
    ),
    "a follow-up forgotten at the cancellation": Twin(
        "coalescing",
        "a_follow_up",
        "its follow-up:",
        {
            "cancel_job": [
                (
                    "engine.ended(past, null, ",
                    "engine.ended(jsonb_populate_record(past, '{\"follow_up\": null}'), null, ",
                )
            ]
        },
    ),
    "a follow-up that is the newest subject alone": Twin(
        "coalescing",
        "a_follow_up",
        "what stays true was forgotten:",
        {"mark_follow_up": [("where follow_up -> field = 'true'", "where false")]},
    ),
    "a cancellation forgotten by recovery": Twin(
        "cancel",
        "cancel / recover",
        "a cancelled job went on:",
        {
            "recover_job": [
                ("when cancel_requested_at is not null              then 'cancelled'\n                when", "when")
            ]
        },
    ),
    "a wait that overlooks its cancellation": Twin(
        "cancel",
        "cancel / wait",
        "a cancelled job went on:",
        {"wait_job": [("       and cancel_requested_at is null\n", "")]},
    ),
    "retention that takes a version's record": Twin(
        "retention",
        "a_cleanup",
        "a finished job's row is gone too soon:",
        {"prune_jobs": [("       and version is null\n", "")]},
    ),
    # One more for each check of the watch that none of those has met.
    "an ask again told as an acceptance": Twin(
        "2", "a_follow_up", "a job was accepted twice:", {"mark_follow_up": [("'asked_again'", "'accepted'")]}
    ),
    "an acceptance that nobody hears of": Twin(
        "the promise",
        "a_publication",
        "a row without an acceptance:",
        {"accept_job": [("'accepted', state, attempts from job", "'accepted', state, attempts from job where false")]},
    ),
    "a claim told of another job": Twin(
        "the promise",
        "a_publication",
        "something happened to a job that nobody accepted:",
        {"claim_next_job": [("select id, now, 'claimed'", "select uuidv7(), now, 'claimed'")]},
    ),
    "a claim that nobody hears of": Twin(
        "5",
        "claim / claim",
        "owned by another, or nobody, than the events tell:",
        {"claim_job": [("from job where fresh", "from job where not fresh")]},
    ),
    "an advance told under an older fence": Twin(
        "3",
        "a_publication",
        "a stale owner left an event (invariant 3):",
        {"advance_job": [("state, by_claim, attempts from job", "state, by_claim - 1, attempts from job")]},
    ),
    "an end that is told twice": Twin(
        "the promise",
        "a_publication",
        "something happened to a job after its end:",
        {
            "finish_job": [
                (
                    "now, 'finished', state, claim_id, attempts from job",
                    "now, 'finished', state, claim_id, attempts from job, generate_series(1, 2)",
                )
            ]
        },
    ),
    "fences that go down": Twin(
        "4",
        "a_long_way",
        "a newer owner has an older fence (invariant 4):",
        schema=(
            NEXT_CLAIM.format("1000000 - nextval('engine.claim_id')"),
            NEXT_CLAIM.format("nextval('engine.claim_id')"),
        ),
    ),
    "a restore that trusts the number it is given": Twin(
        "4",
        "stateful",
        "a fence went back (invariant 4)",
        {"lift_claims": [("greatest(%(above)s, (select last_value from engine.claim_id))", "greatest(%(above)s, 1)")]},
    ),
    "recovery that gives an attempt back": Twin(
        "6",
        "a_lost_worker",
        "a fourth attempt (invariant 6):",
        {
            "recover_job": [
                ("when claim_id is not null and attempts >= 3       then 'attempts_exhausted'", ""),
                ("[attempts] as pause", "[1] as pause"),
                ("set state        = 'REQUESTED'", "set attempts = least(attempts, 2), state = 'REQUESTED'"),
            ]
        },
    ),
    "a failure that leaves the row": Twin(
        "the promise",
        "a_failure",
        "a job is in two places:",
        {
            "fail_job": [
                (
                    "delete from engine.job as job\n     using doomed\n",
                    "update engine.job as job set wake_ups = 0 from doomed\n",
                )
            ]
        },
    ),
    "a failure that nobody hears of": Twin(
        "the promise",
        "a_failure",
        "a job is gone without an end:",
        {"fail_job": [("%(code)s::text) from ended", "%(code)s::text) from ended where false")]},
    ),
    "a failure that isn't kept": Twin(
        "the promise",
        "a_failure",
        "a failed job left no failure:",
        {"fail_job": [("started_at, now\n      from ended", "started_at, now\n      from ended where false")]},
    ),
    "a failure told as a success": Twin(
        "the promise",
        "a_failure",
        "a finished job failed:",
        {"fail_job": [("now, 'failed', state", "now, 'finished', state")]},
    ),
    "a wait told as an end": Twin(
        "the promise",
        "a_long_way",
        "a finished job came back:",
        {"wait_job": [("now, 'waiting', state", "now, 'finished', state")]},
    ),
    "a finish that keeps its follow-up": Twin(
        "coalescing",
        "accept / finish",
        "a follow-up was forgotten:",
        {"finish_job": [("           follow_up       = null,\n", "")]},
    ),
    "a payload in the result": Twin(
        "8",
        "stateful",
        "a finished job's row tells its payload (invariant 8):",
        {"finish_job": [("job.result || %(result)s", "job.result || jsonb_build_object('sent', job.request)")]},
    ),
    "an exception's text among the details": Twin(
        "9",
        "a_long_way",
        "what is private stands outside its job's row (invariants 8, 9):",
        python=an_exception_s_text_among_the_details,
    ),
    "a claim by the server's own clock": Twin(
        "10",
        "stateful",
        "not quiet after",
        {"claim_next_job": [("select engine.clock() as now", "select now() as now")]},
    ),
    "a lock that a session keeps": Twin(
        "12",
        "a_schedule_and_a_pause",
        "something is left in a session (invariant 12):",
        {"lock_catch_up": [("for update skip locked", "and pg_try_advisory_lock(7)")]},
    ),
    "a catalogue that isn't read back": Twin(
        "13", "a publication and cleanup", "a mixed or foreign entry:", python=a_catalogue_that_is_not_read_back
    ),
    "a catalogue without the dataset's lock": Twin(
        "13",
        "a publication and cleanup",
        "a mixed or foreign entry:",
        python=of_a_dataset("lock_dataset", "for no key update", ""),
    ),
    "an end that owes a wake-up": Twin(
        "outbox",
        "a_publication",
        "a wake-up is owed to a job that has ended:",
        schema=broken("ended", "delete from engine.outbox where job_id = past.id;", ""),
    ),
    "cleanup that takes what is kept": Twin(
        "ledger", "a_publication", "something kept was removed:", python=cleanup_that_takes_what_is_kept
    ),
    "a removal that is forgotten": Twin(
        "ledger",
        "a_cleanup",
        "a removal was forgotten:",
        {"mark_removed": [("removed_at = engine.clock(), ", "")]},
    ),
    "removed twice within a minute": Twin(
        "ledger",
        "a_failure",
        "removed twice too soon:",
        {"mark_removed": [("interval '15 minutes'", "interval '1 minute'")]},
    ),
    "a wait that moves the deadline": Twin(
        "7",
        "a_long_way",
        "a deadline moved (invariant 7):",
        {
            "wait_job": [
                ("       set claim_id        = null,", "       set claim_id = null, deadline_at = now + run_budget,")
            ]
        },
    ),
    "a slot that two may use": Twin(
        "11",
        "a_schedule_and_a_pause",
        "a scheduled job without its slot:",
        {"move_schedule": [("where key = %(key)s", "where key = %(key)s and false")]},
    ),
    "a slot that comes again": Twin(
        "11",
        "a_schedule_and_a_pause",
        "a slot that comes again:",
        {"move_schedule": [("next_due_at  = %(next_due_at)s", "next_due_at  = next_due_at")]},
    ),
    "recovery that erases the payload": Twin(
        "8",
        "a_lost_worker",
        "a payload is gone before its job's end:",
        {"recover_job": [("set state        = 'REQUESTED'", "set request = null, state = 'REQUESTED'")]},
    ),
    # What each of the orders of two acts is judged by.
    "an ask that doesn't see its first": Twin(
        "5",
        "claim any / the same ask again",
        "an error that nobody is to hear:",
        {"claim_next_job": [("where lease_owner = %(ask)s", "where false")]},
    ),
    "recovery that trusts the number of attempts": Twin(
        "6",
        "ledger / recover",
        "a scheduled function has heard an error:",
        {"recover_job": [("when claim_id is not null and attempts >= 3       then 'attempts_exhausted'", "")]},
    ),
    "a claim given to whoever asks": Twin(
        "5",
        "claim / claim",
        "one job, and so many claims:",
        {"claim_job": [("lease_owner = %(ask)s and ", "")]},
    ),
    "a claim that passes over what is due": Twin(
        "7",
        "claim any / claim any",
        "due, and nobody got it:",
        {"claim_next_job": [("and not held_back", "and held_back")]},
    ),
    "an ask again that gets nothing": Twin(
        "5",
        "claim any / the same ask again",
        "the same ask, and another claim:",
        {"claim_next_job": [("from asked where locked_until > (select now from clock)", "from asked where false")]},
    ),
    "progress that is lost": Twin(
        "3",
        "heartbeat / recover",
        "an answer that isn't true:",
        {"extend_lease": [("coalesce(%(records)s, records)", "records")]},
    ),
    "a lost lease told as a cancellation": Twin(
        "3",
        "finish / recover",
        "an answer that isn't for this:",
        {
            "await_writers": [
                ("claim_id = %(claim_id)s and locked_until > engine.clock()", "true"),
                ("cancel_requested_at is not null", "true"),
            ]
        },
    ),
    "a pause that two may end": Twin(
        "7",
        "resume / recover, a pause that is over",
        "a pause was ended twice, or not:",
        {
            "end_pause": [
                ("     order by pipeline\n       for update\n", ""),
                ("select pipeline from gone", "select pipeline from ended"),
            ]
        },
    ),
    "a pause that counts what another has counted": Twin(
        "7",
        "resume / resume of all",
        "pauses of so many minutes added something else:",
        {"end_pause": [("job.pauses_counted_until, ", "")]},
    ),
    "an ask again that changes nothing": Twin(
        "coalescing",
        "accept / finish",
        "accepted, but nobody will do it:",
        {"mark_follow_up": [("else %(subject)s ||", "else follow_up ||")]},
    ),
    "a follow-up that forgets the one before": Twin(
        "coalescing",
        "accept / accept, while one is at work",
        "a follow-up without what one of those said that it stands for:",
        {"mark_follow_up": [("where follow_up -> field = 'true'", "where false")]},
    ),
    "a start that nobody counts": Twin(
        "11",
        "catch-up / catch-up",
        "so many were started as they say, and so many there are:",
        python=a_start_that_nobody_counts,
    ),
    "wake-ups that two may take": Twin(
        "outbox",
        "relay / relay",
        "a wake-up was sent twice, or not:",
        {"take_owed": [("for update\n      skip locked", "")]},
    ),
    # What the model knows of the answers it gets.
    "nothing due taken for a database that is away": Twin(
        "5",
        "stateful",
        "the database was away, but nothing had broken",
        python=nothing_due_is_a_database_that_is_away,
    ),
    "a lost write that is not repeated": Twin(
        "5", "stateful", "a write was given up, but no process had died:", python=a_lost_ask_is_not_repeated
    ),
    "an ask again that gets an id of its own": Twin(
        "2",
        "stateful",
        "an answer names a job nobody has seen:",
        {"mark_follow_up": [("select * from job", "select *, uuidv7() as id from job")]},
    ),
    "a claim told with another fence": Twin(
        "3",
        "stateful",
        "a claim that the row doesn't know:",
        {"claim_next_job": [("select *, extract", "select *, claim_id + 1 as claim_id, extract")]},
    ),
    "a lease of twice the time": Twin(
        "7",
        "stateful",
        "a lease longer than asked for:",
        {"claim_next_job": [("least(now + %(lease)s", "least(now + 2 * %(lease)s")]},
    ),
    "a lease that began when its job was due": Twin(
        "7",
        "stateful",
        "a lease that is over:",
        {"claim_job": [("least(now + %(lease)s", "least(job.run_at + %(lease)s")]},
    ),
    "the same ask that gets nothing": Twin(
        "5",
        "stateful",
        "the same ask got no claim, or another (invariant 5):",
        {"claim_next_job": [("from asked where locked_until > (select now from clock)", "from asked where false")]},
    ),
    "a checkpoint that looks at its fence afterwards": Twin(
        "3",
        "stateful",
        "a stale write changed a row (invariant 3):",
        {
            "save_checkpoint": [
                ("update engine.job", "with saved as (update engine.job"),
                (FENCE, ""),
                (
                    "returning attempts",
                    "returning attempts, claim_id)\nselect * from saved where claim_id = %(claim_id)s",
                ),
            ]
        },
    ),
    "a cancellation told to whoever comes late": Twin(
        "3",
        "stateful",
        "a stale owner hears of a cancellation:",
        {"await_writers": [("claim_id = %(claim_id)s and locked_until > engine.clock()", "true")]},
    ),
    "a cancellation that nobody asked for": Twin(
        "cancel",
        "stateful",
        "an owner hears of a cancellation that nobody asked for:",
        {"extend_lease": [("cancel_requested_at is not null", "true")]},
    ),
    "a heartbeat of twice the time": Twin(
        "7",
        "stateful",
        "a lease extended by more than asked for:",
        {"extend_lease": [("%(lease)s", "2 * %(lease)s")]},
    ),
    "a note of another's number": Twin(
        "ledger",
        "stateful",
        "a note is not in the ledger:",
        {"note_in_ledger": [("returning id", "returning id + 1000 as id")]},
    ),
    "a completion that is put off": Twin(
        "the promise",
        "stateful",
        "an owner was told that it has finished, but hasn't:",
        python=a_completion_that_is_put_off,
    ),
    "a finish that keeps nothing of its step": Twin(
        "ledger",
        "stateful",
        "the ledger keeps what no step named, or the reverse:",
        {"finish_job": [("engine.ended(past, %(keep)s", "engine.ended(past, '{}'")]},
    ),
    "what a step keeps in the next one's name": Twin(
        "ledger",
        "stateful",
        "kept by another step than said:",
        {"advance_job": [("then job.left_state end", "then job.state end")]},
    ),
    "a lost lease taken for a failed attempt": Twin(
        "3", "stateful", "work ends otherwise:", python=a_lost_lease_is_a_failed_attempt
    ),
    "a cancellation told before its time": Twin(
        "cancel",
        "stateful",
        "a job that was cancelled is still there:",
        {"cancel_job": [("select 'requested', null from marked", "select 'cancelled', null from marked")]},
    ),
    "a requeue of something else": Twin(
        "the promise",
        "stateful",
        "requeued as something else:",
        {"lock_failure": [("select *", "select *, subject || '{\"revision\": 99}' as subject")]},
    ),
    "a requeue that its failure doesn't know of": Twin(
        "the promise",
        "stateful",
        "a failure doesn't name who took its place:",
        {"mark_requeued": [("where", "where false and")]},
    ),
    "a discard that takes only what was pending": Twin(
        "ledger",
        "stateful",
        "discarded, but kept:",
        {"discard_job": [("status <> 'garbage'", "status = 'pending'")]},
    ),
    "a restore that trusts its own fences": Twin(
        "4",
        "stateful",
        "a fence that was given may come again (invariant 4):",
        {
            "lift_claims": [
                (
                    "greatest(%(above)s, (select last_value from engine.claim_id))",
                    "(select last_value from engine.claim_id)",
                )
            ]
        },
    ),
    # Two pipelines' own commits.
    "a load that nothing holds": Twin(
        "3",
        "a load and recovery",
        "a stale owner was about to commit:",
        {
            "hold_job": [("for key share", "")],
            "finish_job": UNFENCED,
        },
    ),
    "a load in two transactions": Twin(
        "3", "a load and recovery", "rows, record and end don't go together:", python=a_load_in_two_transactions
    ),
    "a load's end that is looked at again": Twin(
        "5", "a load and recovery", "the worker was told otherwise:", python=an_end_that_is_looked_at_again
    ),
    "recovery that gives up at once": Twin(
        "6",
        "a load and recovery",
        "the load was given up:",
        {"recover_job": [("attempts >= 3", "attempts >= 1")]},
    ),
    "loads without a line": Twin(
        "order",
        "two loads of a dataset",
        "done in another order, twice, or not as told:",
        python=loads_without_a_line,
    ),
    "a publication's end that is looked at again": Twin(
        "5", "two owners of a publication", "a version twice, or none:", python=an_end_that_is_looked_at_again
    ),
    "a catalogue that waits for no lock": Twin(
        "13",
        "a publication and cleanup",
        "the publication has ended otherwise:",
        python=a_publication_that_waits_for_no_lock,
    ),
    "a version that doesn't become the current one": Twin(
        "13",
        "a publication and cleanup",
        "the publication was lost:",
        python=of_a_dataset("add_version", "current_version = %(number)s", "current_version = current_version"),
    ),
}
