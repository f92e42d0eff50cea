"""Every call of a life goes wrong once, in each way there is; then, left alone, everything ends as if nothing had been.

A process that dies leaves its claim to recovery; one whose request or reply was lost goes on as the engine sees fit;
one whose write the server refused for a conflict ends, or has failed an attempt. Callers and operators who hear nothing
look, and ask again; a step does for a job what it does, whoever runs it. So each job ends as it does undisturbed, with
the same code, but for what stands in `ALSO`.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

from chalicelib.db import DatabaseAway, statements
from chalicelib.engine import Advance, Cadence, Finished, Leased, Outage, PermanentFailure, Refusal, Wait
from tests import toy
from tests.proof import world as worlds
from tests.proof.conftest import LONG
from tests.proof.watch import PRIVATE, require
from tests.proof.world import MODES, REMOVERS, Died, World, disturb
from tests.toy import Letter, Parcel
from tests.writing import CONFLICTS, writes, writing_statements

ENDS = (Died, DatabaseAway, Refusal, *map(psycopg.errors.lookup, CONFLICTS))
"""With what an invocation may end."""


class Life:
    """Processes one after the other; the one that is disturbed ends there, and the story goes on."""

    def __init__(self, world: World):
        self.world = world
        self.engine = world.engine
        self.worker = world.worker
        self.outcomes: list[str] = []

    def process(self, act: Callable[[], Any]) -> Any:
        """One invocation, or one request; then everybody looks."""
        try:
            return act()
        except ENDS:
            return None
        finally:
            point, self.world.point = self.world.point, lambda name, act: act()
            self.world.watch.look()
            self.world.point = point

    def ask(self, act: Callable[[], Any]) -> Any:
        """Somebody who asks again where no answer came."""
        return self.process(act) or self.process(act)

    def accept(self, pipeline: str, name: str, revision: int = 1, *, insured: bool = False, **more: Any) -> UUID:
        """A caller; where no answer came, it asks again unless it finds its job."""
        subject = Parcel(name=name, revision=revision, insured=insured)
        known = set(self.world.watch.seen)
        accepted = self.process(lambda: self.engine.accept(pipeline, subject, **more))
        if found := set(self.world.watch.seen) - known:
            return UUID(found.pop())
        return (accepted or self.process(lambda: self.engine.accept(pipeline, subject, **more))).job.id

    def wake(self, job: UUID) -> None:
        """A job's wake-up comes."""
        if worked := self.process(lambda: self.worker.work("work", job=job, until=lambda: 300)):
            self.outcomes.append(worked.outcome)

    def ticks(self, minutes: int = 1, queue: str = "work") -> None:
        for _ in range(minutes):
            self.process(self.engine.recover)
            worked = self.process(lambda: self.worker.work_on(queue, [], lambda: 300)) or []
            self.outcomes += [each.outcome for each in worked]
            self.world.clock.advance("61 s")

    def ends(self, job: UUID) -> None:
        """Until the job has ended, if need be after it was recovered."""
        for _ in range(6):
            if not self.world.watch.seen[str(job)].ended:
                self.ticks()


def writes_and_keeps(leased: Leased[Any]) -> Advance:
    leased.heartbeat(force=True, records=1)
    kept = leased.note("s3_object", {"key": f"{leased.state}-{leased.claim_id}"})
    leased.note("s3_object", {"key": f"scratch-{leased.claim_id}"})
    leased.save({"page": 1})
    return Advance(keep=[kept], size=1)


def finishes_with_a_version(leased: Leased[Any]) -> Finished:
    kept = leased.note("s3_object", {"key": f"graph-{leased.claim_id}"})
    with leased.transaction() as tx:
        leased.hold(tx)
        leased.finish(tx, keep=[kept], version=1)
    return Finished()


def once(*first: Callable[[Leased[Any]], Any]) -> Callable[[Leased[Any]], Any]:
    """These at its first runs, then it advances."""
    left = list(first)
    return lambda leased: left.pop(0)(leased) if left else Advance()


def raises(error: BaseException) -> Callable[[Leased[Any]], Any]:
    def step(leased: Leased[Any]) -> Any:
        raise error

    return step


denied = raises(PermanentFailure("source_denied"))


def a_publication(life: Life) -> None:
    """From the request to the version: two steps, files, a transaction at the end."""
    toy.behaviour.update(PACK=writes_and_keeps, SHIP=finishes_with_a_version)
    named = life.accept("delivery", "a")
    life.wake(named)
    life.ticks()


def a_long_way(life: Life) -> None:
    """Waits, an outage, an attempt that fails, a hand-over."""
    toy.behaviour.update(
        LOAD=once(lambda leased: Wait(20, "export"), raises(Outage("source_unreachable"))),
        DRIVE=once(raises(ValueError(PRIVATE))),
        UNLOAD=once(lambda leased: (setattr(leased, "_until", lambda: 1.0), Advance())[1]),
    )
    life.accept("tour", "a")
    life.ticks(4)


def a_failure(life: Life) -> None:
    """A payload, files and no success; then an operator."""
    life.accept("post", "a", request=Letter(text=PRIVATE))
    toy.behaviour["READ"] = lambda leased: (writes_and_keeps(leased), denied(leased))
    life.ticks()
    failed = life.accept("delivery", "b")
    toy.behaviour.update(
        PACK=writes_and_keeps, SHIP=lambda leased: denied(leased) if leased.id == failed else Advance()
    )
    life.ends(failed)
    life.ask(lambda: life.engine.requeue(failed))


def a_follow_up(life: Life) -> None:
    """Asked again while it is at work; cancelled; the follow-up runs. Another is cancelled before it is at work."""
    first = life.accept("delivery", "a")
    life.accept("delivery", "a", 2, insured=True)
    life.accept("delivery", "a", 3)
    toy.behaviour["PACK"] = lambda leased: (leased.id == first and life.engine.cancel(first), Advance())[1]
    life.ends(first)
    second = life.accept("delivery", "b")
    life.accept("delivery", "b", 2, insured=True)
    life.ask(lambda: life.engine.cancel(second))


def a_queue_that_is_away(life: Life) -> None:
    """The wake-up stays owed, until SQS takes it."""
    life.world.queues.mood = "away"
    life.accept("tour", "a")
    life.process(life.engine.recover)
    life.world.queues.mood = "well"
    life.ticks()


def a_lost_worker(life: Life) -> None:
    """A worker dies with files half written; recovery, three times, then a failure; the payload is gone."""
    toy.behaviour["READ"] = lambda leased: (writes_and_keeps(leased), raises(toy.Crash())(leased))

    def dies() -> None:
        with suppress(toy.Crash):
            life.worker.work("work", job=None, until=lambda: 300)

    life.accept("post", "a", request=Letter(text=PRIVATE))
    for _ in range(3):
        life.process(dies)
        life.world.clock.advance("62 s")
        life.process(life.engine.recover)
        life.world.clock.advance("41 s")


def a_line(life: Life) -> None:
    """They run one at a time: the first is lost and recovered, the second cancelled, the third fails."""
    of_the_first = once(raises(toy.Crash()), writes_and_keeps)
    toy.behaviour["BOARD"] = lambda leased: of_the_first(leased) if leased.id == first else denied(leased)
    first = life.accept("ferry", "a")
    cancelled = life.accept("ferry", "a")
    life.accept("ferry", "a")
    with suppress(toy.Crash):
        life.ticks()
    life.ask(lambda: life.engine.cancel(cancelled))
    life.world.clock.advance("80 s")
    life.process(life.engine.recover)
    life.world.clock.advance("20 s")
    for _ in range(2):
        with suppress(toy.Crash):  # where the first claim went wrong, it comes only now
            life.ticks()


def a_schedule_and_a_pause(life: Life) -> None:
    """Three slots, one of a busy subject; a pause over what they started."""
    cadence = Cadence(every="day", at="02:00", zone="Europe/Berlin")
    point, life.world.point = life.world.point, lambda name, act: act()
    for key, pipeline in (("a", "delivery"), ("b", "tour"), ("c", "recall")):
        life.engine.set_schedule(key, pipeline, {"name": key, "revision": 1}, cadence)
    life.engine.accept("delivery", Parcel(name="c"))
    life.world.watch.look()
    life.world.point = point
    life.world.clock.advance("1 day")
    for _ in range(2):  # a tick that has died leaves its slots to the next one
        life.process(life.engine.catch_up)
    life.ask(lambda: life.engine.pause("tour", hours=1))
    life.world.clock.advance("10 min")
    life.ask(lambda: life.engine.resume("tour"))
    life.ticks()


def a_cleanup(life: Life) -> None:
    """Garbage is removed, and once more; what is old is pruned, a version's record isn't."""
    point, life.world.point = life.world.point, lambda name, act: act()
    toy.behaviour["SHIP"] = finishes_with_a_version
    life.accept("delivery", "c")
    life.ticks()
    toy.behaviour["PACK"] = lambda leased: (writes_and_keeps(leased), denied(leased))
    life.accept("delivery", "a")
    life.ticks()
    life.accept("recall", "b")
    life.ticks()
    life.world.point = point
    worlds.broken_removers = True
    life.process(lambda: life.engine.clean_up(removers=REMOVERS))
    worlds.broken_removers = False
    for minutes in (0, 16, 16):
        life.world.clock.advance(f"{minutes} min")
        life.process(lambda: life.engine.clean_up(removers=REMOVERS))
    life.world.clock.advance("31 days")
    life.process(lambda: life.engine.clean_up(removers=REMOVERS))


STORIES = {
    story.__name__: story
    for story in (
        a_publication,
        a_long_way,
        a_failure,
        a_follow_up,
        a_queue_that_is_away,
        a_lost_worker,
        a_line,
        a_schedule_and_a_pause,
        a_cleanup,
    )
}


ALSO = {("a_lost_worker", mode): [("post", "internal_error")] for mode in CONFLICTS}
"""What else a story may end as: where its third attempt fails of a conflict before the worker can die of it."""

OF_A_STEP = {("a_follow_up", "cancel_job"), *(("a_publication", call) for call in ("hold_job", "finish_job", "commit"))}
"""What a step does in a transaction of its own: where that is lost, its worker ends, and another attempt comes."""


class Disturbed:
    """Counts the calls, and disturbs one."""

    def __init__(self, number: int | None, mode: str):
        self.number = number
        self.mode = mode
        self.calls: list[str] = []

    def __call__(self, name: str, act: Callable[[], Any]) -> Any:
        self.calls.append(name)
        if len(self.calls) - 1 != self.number:
            return act()
        return disturb(self.mode, act)


class Told(NamedTuple):
    """The calls of a story, how each of its jobs ended (finished, or a code), and the attempts of each."""

    calls: list[str]
    ends: list[tuple[str, str]]
    spent: list[tuple[str, int]]


def tell(world: World, story: str, number: int | None = None, mode: str = "", undisturbed: Told | None = None) -> Told:
    """Tell a story with its n-th call disturbed, to its quiet end, which is as that of the undisturbed one."""
    world.reset()
    disturbed = Disturbed(number, mode)
    world.point = disturbed
    try:
        life = Life(world)
        STORIES[story](life)
        for key in world.watch.last.schedules:
            world.point = lambda name, act: act()
            world.engine.delete_schedule(key)
        world.until_quiet()
        ends, spent = ended(world), sorted((fate.pipeline, fate.spent) for fate in world.watch.seen.values())
        if mode in ("request lost", "reply lost"):
            # Nobody has died: the worker repeats, or reads back, and neither gives its job up nor spends an attempt.
            require("lost" not in life.outcomes, "a lost message was taken for a lost lease")
            if undisturbed and (story, disturbed.calls[number]) not in OF_A_STEP:
                require(spent == undisturbed.spent, "a lost message has cost an attempt:", spent)
        if undisturbed:
            as_wanted = ends in (undisturbed.ends, ALSO.get((story, mode)))
            require(as_wanted, "a story ended otherwise:", ends, "not", undisturbed.ends)
    except BaseException as error:
        struck = disturbed.calls[number] if number is not None and number < len(disturbed.calls) else ""
        error.add_note(f"{story}, call {number} ({struck}), {mode}" if mode else f"{story}, with nothing disturbed")
        raise
    return Told(disturbed.calls, ends, spent)


def ended(world: World) -> list[tuple[str, str]]:
    """How each job has ended, by pipelines; those of one in the order in which they were accepted."""
    failures, ends = world.watch.last.failures, []
    for id, fate in world.watch.seen.items():
        ends.append((fate.pipeline, failures[id]["code"] if id in failures else fate.ended))
    require(not any(code == "unrecoverable" for _, code in ends), "recovery gave up on a row")
    return sorted(ends, key=lambda end: end[0])


def points_of(world: World, story: str, modes: tuple[str, ...] = MODES) -> int:
    """Disturb each call in each way; how many that were."""
    undisturbed = tell(world, story)
    for number in range(len(undisturbed.calls)):
        for mode in modes:
            tell(world, story, number, mode, undisturbed)
    return len(undisturbed.calls) * len(modes)


def conflicts_of(world: World, story: str) -> int:
    """Refuse each write and COMMIT for a conflict: by one SQLSTATE in the short run, for nothing tells them apart."""
    undisturbed, points = tell(world, story), 0
    for number, name in enumerate(undisturbed.calls):
        if name != "commit" and not writes(getattr(ENGINE, name, "")):
            continue
        for mode in CONFLICTS if LONG else (CONFLICTS[number % 2],):
            tell(world, story, number, mode, undisturbed)
            points += 1
    return points


@pytest.mark.parametrize("story", STORIES)
def test_T27_whatever_call_goes_wrong(world, figures, story):
    figures["crash points"] = points_of(world, story) + conflicts_of(world, story)
    figures["stories"] = 1


def test_T27_a_transaction_in_which_the_server_has_refused_is_over(world):
    world.reset()
    world.point = Disturbed(0, "40001")

    with world.worker.db.transaction() as tx:
        with pytest.raises(psycopg.errors.SerializationFailure):
            tx.run(ENGINE.lock_catch_up)
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            tx.run(ENGINE.read_clock)


ELSEWHERE = {  # what it takes a caller, a pipeline or a broken row to see
    "tests/integration/api/test_writes.py": {
        *("delete_schedule", "purge_failure", "set_schedule"),
        *("leave_in_ledger", "settle_key", "take_key", "take_over"),
    },
    "tests/integration/pipelines/test_conflicts.py": {"discard_job"},
    "tests/integration/pipelines/test_restore.py": {"lift_claims"},
    "tests/integration/engine/test_recovery.py": {"fail_unrecoverable_job"},
}


def test_T27_every_write_of_the_engine_is_in_a_story(world):
    told = {name for story in STORIES for name in tell(world, story).calls}

    assert writing_statements("chalicelib.engine") - told == {name for names in ELSEWHERE.values() for name in names}


ENGINE = statements("chalicelib.engine")
