"""Two at one row: every order of their statements and COMMITs ends well, and nobody waits for ever."""

import json
import random
import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from chalicelib.db import Database
from chalicelib.engine import (
    Accepted,
    Cadence,
    Cancelled,
    Engine,
    Leased,
    LeaseLost,
    Outcome,
    Pause,
    Schedule,
    SubjectBusy,
)
from tests import toy
from tests.proof import interleaving
from tests.proof.conftest import LONG
from tests.proof.interleaving import SEED, Step, explore, nobody_hears_the_same, only_known_errors, owner_of
from tests.proof.watch import Snapshot, Violation, at, require
from tests.proof.world import World
from tests.toy import Parcel

MOST = None if LONG else 60
"""Orders of one pair, drawn at random; none: every one."""

LEASE = timedelta(seconds=60)
SOON = Cadence(every="day", at="09:01", zone="UTC")
"""Due a minute after each beginning."""

ID = r'[0-9a-f]{8}-[0-9a-f-]{27}|"(claim_id|id|number)": \d+'

Act = Callable[[Engine], Any]


@dataclass
class Scene:
    """What there is before, who acts, and what must be so after every order."""

    world: World
    job: UUID | None = None
    leased: Leased[Any] | None = None
    line: list[UUID] = field(default_factory=list)
    bound: datetime | None = None
    now: Snapshot | None = None

    # Before

    def accept(self, pipeline: str = "delivery", name: str = "a") -> UUID:
        self.job = self.accepted(pipeline, name)
        return self.job

    def accepted(self, pipeline: str, name: str = "a") -> UUID:
        """At an instant of its own: of jobs that are due at the same one PostgreSQL finds now this first, now that."""
        job = self.world.engine.accept(pipeline, Parcel(name=name)).job.id
        self.world.clock.advance("1 s")
        return job

    def owned(self, *, attempts: int = 1, pipeline: str = "delivery") -> None:
        self.accept(pipeline)
        for spent in range(attempts):
            self.leased = self.world.worker.claim("work", job=self.job, ask=uuid4(), lease=LEASE)
            assert self.leased
            if spent + 1 < attempts:
                self.leased.retry("internal_error", {})
                self.world.clock.advance("1 min")

    def ahead(self) -> None:
        """Somebody owns the head of a line; two wait for their turn."""
        self.owned(pipeline="ferry")
        self.line = [self.accepted("ferry") for _ in range(2)]

    def failed(self) -> None:
        self.accept()
        self.world.engine.cancel(self.job)

    # After

    @property
    def row(self) -> dict[str, Any]:
        return self.now.jobs[str(self.job)]

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.now.events if event["job_id"] == str(self.job)]

    def stands(self, *kinds: str) -> bool:
        return set(kinds) <= set(self.kinds())


# Acts


def claim(scene: Scene) -> Act:
    return lambda engine: engine.claim("work", job=scene.job, ask=uuid4(), lease=LEASE)


def claim_any(scene: Scene) -> Act:
    return lambda engine: engine.claim("work", job=None, ask=uuid4(), lease=LEASE)


ASK = uuid4()


def the_same_ask(scene: Scene) -> Act:
    return lambda engine: engine.claim("work", job=None, ask=ASK, lease=LEASE)


def recover(scene: Scene) -> Act:
    return interleaving.recover


def recover_and_claim(scene: Scene) -> Act:
    """Another recovery, and whoever claims after it."""

    def act(engine: Engine) -> Leased[Any] | None:
        interleaving.recover(engine)
        scene.world.clock.advance("1 min")
        return engine.claim("work", job=scene.job, ask=uuid4(), lease=LEASE)

    return act


def late(act: Callable[[Scene], Act]) -> Callable[[Scene], Act]:
    """Time passes first, so that a lease has ended by then."""

    def made(scene: Scene) -> Act:
        def later(engine: Engine) -> Any:
            scene.world.clock.advance("2 min")
            return act(scene)(engine)

        return later

    return made


def relay(scene: Scene) -> Act:
    rounds = iter([True, False])
    return lambda engine: engine._relay(None, lambda: next(rounds))[0]


def time_passes(scene: Scene) -> Act:
    return lambda engine: scene.world.clock.advance("2 min")


def still_owned(scene: Scene, leased: Leased[Any]) -> None:
    require(owner_of(scene.world, leased.id) == leased.claim_id, "a stale owner has written:", leased.claim_id)


def owner(write: Callable[[Leased[Any]], Any]) -> Callable[[Scene], Act]:
    """The job's owner writes, on this connection; before the COMMIT somebody looks whose job it is.

    What it has written keeps everybody from taking the job away, so that whoever has lost it has lost it before.
    """

    def made(scene: Scene) -> Act:
        leased = scene.leased

        def act(engine: Engine) -> Any:
            with engine.db.transaction() as tx:
                leased._around = replace(engine._around, db=tx)
                reply = write(leased)
                still_owned(scene, leased)
            return reply

        return act

    return made


def finish_in_a_transaction(scene: Scene) -> Act:
    leased = scene.leased

    def act(engine: Engine) -> None:
        leased._around = engine._around
        with leased.transaction() as tx:
            leased.hold(tx)
            leased.finish(tx, version=1)
            still_owned(scene, leased)

    return act


def hold(scene: Scene) -> Act:
    """A step that holds its job while it writes elsewhere, as a publication does."""
    leased, job = scene.leased, str(scene.job)

    def act(engine: Engine) -> None:
        with engine.db.transaction() as tx:
            leased.hold(tx)
            tx.run("select 1")
            owner = scene.world.watch.snapshot().jobs[job]["claim_id"]
            require(owner == leased.claim_id, "it was taken away while it was held:", owner)

    return act


finish = owner(lambda leased: leased.complete([], {}))
heartbeat = owner(lambda leased: leased.heartbeat(force=True, records=1))
note = owner(lambda leased: bool(leased.note("s3_object", {"key": "a"})))
save = owner(lambda leased: leased.save({"page": 1}))
advance = owner(lambda leased: leased.advance("SHIP", [], {}, hand_over=False))
wait = owner(lambda leased: leased.wait(1, None))
retry = owner(lambda leased: leased.retry("internal_error", {}))
fail = owner(lambda leased: leased.fail("source_denied", {}))


def accept(revision: int = 2, *, insured: bool = False) -> Callable[[Scene], Act]:
    subject = Parcel(name="a", revision=revision, insured=insured)
    return lambda scene: lambda engine: engine.accept("delivery", subject)


def get_in_line(scene: Scene) -> Act:
    return lambda engine: engine.accept("ferry", Parcel(name="a"))


def cancel_the_next(scene: Scene) -> Act:
    return lambda engine: engine.cancel(scene.line[0])


def cancel_the_last(scene: Scene) -> Act:
    return lambda engine: engine.cancel(scene.line[1])


def claim_the_next(scene: Scene) -> Act:
    return lambda engine: engine.claim("work", job=scene.line[0], ask=uuid4(), lease=LEASE)


def recall(scene: Scene) -> Act:
    return lambda engine: engine.accept("recall", Parcel(name="a"))


def cancel(scene: Scene) -> Act:
    return lambda engine: engine.cancel(scene.job)


def discard(scene: Scene) -> Act:
    return lambda engine: engine.discard(scene.job)


def requeue(scene: Scene) -> Act:
    return lambda engine: engine.requeue(scene.job)


def resume(scene: Scene) -> Act:
    return lambda engine: engine.resume("delivery")


def with_a_part(engine: Engine) -> Engine:
    """For it a tour is a part of a delivery."""
    made = copy(engine)
    made.pipelines = engine.pipelines | {"tour": replace(engine.pipelines["tour"], part_of="delivery")}
    return made


def pause_with_its_part(scene: Scene) -> Act:
    return lambda engine: with_a_part(engine).pause("delivery", hours=1)


def resume_with_its_part(scene: Scene) -> Act:
    return lambda engine: with_a_part(engine).resume("delivery")


def resume_all(scene: Scene) -> Act:
    return lambda engine: engine.resume()


def resume_the_line(scene: Scene) -> Act:
    return lambda engine: engine.resume("ferry")


def pause_tours(scene: Scene) -> Act:
    return lambda engine: engine.pause("tour", hours=1)


def catch_up(scene: Scene) -> Act:
    return lambda engine: engine.catch_up()


def put_again(scene: Scene) -> Act:
    return lambda engine: engine.set_schedule("a", "tour", {"name": "a"}, SOON)


# What must be so


def only(replies: list[Any], *kinds: type) -> None:
    """Nobody hears anything else; nothing is what there may be to tell."""
    for reply in replies:
        require(reply is None or isinstance(reply, kinds), "an answer that isn't for this:", repr(reply))


def true(holds: object, scene: Scene, replies: list[Any]) -> None:
    require(holds, "an answer that isn't true:", replies, "for these happened:", scene.kinds())


def one_wins(scene: Scene, replies: list[Any]) -> None:
    at_most_one_wins(scene, replies)
    require(any(isinstance(reply, Leased) for reply in replies), "due, and nobody got it:", scene.row)


def at_most_one_wins(scene: Scene, replies: list[Any]) -> None:
    winners = [reply for reply in replies if isinstance(reply, Leased)]
    require(len(winners) <= 1, "one job, and so many claims:", len(winners))
    if winners:
        require(
            scene.row["claim_id"] == winners[0].claim_id, "a claim that was given doesn't stand:", winners[0].claim_id
        )


def the_same_claim(scene: Scene, replies: list[Any]) -> None:
    claims = {isinstance(reply, Leased) and reply.claim_id for reply in replies}
    require(claims == {scene.row["claim_id"]}, "the same ask, and another claim:", replies)


def claimed_or_not(scene: Scene, replies: list[Any]) -> None:
    """A claim that was given stood, until its lease ended."""
    true(isinstance(replies[0], Leased) == scene.stands("claimed"), scene, replies)
    if not scene.stands("worker_lost"):
        at_most_one_wins(scene, replies[:1])


def held_up(minutes: int, ended: list[bool]) -> Callable[[Scene, list[Any]], None]:
    """So long did pauses hold the job; and who heard that it ended one."""

    def judge(scene: Scene, replies: list[Any]) -> None:
        heard = [reply is True or "pauses_ended" in reply for reply in replies if reply]
        require(heard == ended, "a pause was ended twice, or not:", replies)
        moved = at(scene.row["deadline_at"]) - scene.bound
        require(moved == timedelta(minutes=minutes), "pauses of so many minutes added something else:", minutes, moved)

    return judge


def left(what: Callable[[Scene], Any]) -> Callable[[Scene, list[Any]], None]:
    """What the owner wrote is there if, and only if, its reply said so."""

    def judge(scene: Scene, replies: list[Any]) -> None:
        only(replies[:1], LeaseLost, bool)
        true(isinstance(replies[0], LeaseLost) != bool(what(scene)), scene, replies)

    return judge


def told_the_truth(event: str) -> Callable[[Scene, list[Any]], None]:
    return left(lambda scene: scene.stands(event))


def everybody_has_a_job(scene: Scene, replies: list[Any]) -> None:
    """Whoever was accepted has a job that does what was asked for: theirs, or one whose end starts theirs."""
    for reply in replies:
        if isinstance(reply, Accepted) and not reply.created:
            known = {**scene.now.jobs, **scene.now.failures}[str(reply.job.id)]
            will_be_done = [job["subject"] for job in scene.now.unfinished().values()]
            will_be_done += [known["subject"], known.get("follow_up") or known["subject"]]
            newest = max(parcel["revision"] for parcel in will_be_done)
            require(newest >= 2, "accepted, but nobody will do it:", known)


def insured_all_the_same(scene: Scene, replies: list[Any]) -> None:
    only(replies, Accepted)
    follow_up = scene.row["follow_up"]
    require(follow_up["insured"], "a follow-up without what one of those said that it stands for:", follow_up)


def answered(*kinds: type) -> Callable[[Scene, list[Any]], None]:
    def judge(scene: Scene, replies: list[Any]) -> None:
        only(replies, *kinds)
        everybody_has_a_job(scene, replies)

    return judge


def cancelled_or_finished(scene: Scene, replies: list[Any]) -> None:
    told_the_truth("finished")(scene, replies)
    finished = replies[1] is Outcome.FINISHED and scene.stands("finished")
    true(finished or replies[1] is Outcome.REQUESTED, scene, replies)


def as_many_as_they_say(scene: Scene, replies: list[Any]) -> None:
    only(replies, dict)
    started, jobs = sum(reply.get("started", 0) for reply in replies), list(scene.now.jobs.values())
    require(started == len(jobs), "so many were started as they say, and so many there are:", started, len(jobs))


def two_that_are_due(scene: Scene) -> None:
    scene.accept()
    scene.accepted("delivery", "b")


def another_one_starts(scene: Scene, replies: list[Any]) -> None:
    answered(dict)(scene, replies)
    require(scene.now.schedules["z"]["last_job"], "a pause has stopped another pipeline's schedule:", replies)


def paused(scene: Scene) -> None:
    scene.accept()
    scene.world.engine.pause("delivery", hours=1)
    scene.world.clock.advance("10 min")


def paused_twice(scene: Scene) -> None:
    paused(scene)
    scene.bound = scene.world.engine.job(scene.job).deadline_at
    scene.world.engine.pause(hours=1)
    scene.world.clock.advance("10 min")


def paused_twice_with_a_part(scene: Scene) -> None:
    """The part's job is the younger one: whoever locks it before its whole's meets who comes the other way."""
    scene.accept()
    scene.world.engine.accept("tour", Parcel(name="a"))
    with_a_part(scene.world.engine).pause("delivery", hours=1)
    scene.world.clock.advance("10 min")
    scene.bound = scene.world.engine.job(scene.job).deadline_at
    scene.world.engine.pause(hours=1)
    scene.world.clock.advance("10 min")


def overdue(scene: Scene) -> None:
    scene.accept()
    scene.world.clock.advance("31 min")


def overdue_and_paused(scene: Scene) -> None:
    overdue(scene)
    scene.world.engine.pause("delivery", hours=1)
    scene.world.clock.advance("10 min")


def pause_over(scene: Scene) -> None:
    """Recovery is to end it."""
    scene.accept()
    scene.bound = scene.world.engine.job(scene.job).deadline_at
    scene.world.engine.pause("delivery", hours=1)
    scene.world.clock.advance("61 min")


def pause_over_an_owner(scene: Scene) -> None:
    scene.owned()
    scene.leased.require(2 * 3600)
    scene.world.engine.pause("delivery", hours=1)
    scene.world.clock.advance("61 min")


def pause_over_and_due_schedules(scene: Scene) -> None:
    two_due_schedules(scene)
    scene.world.engine.pause("tour", hours=1)
    scene.world.clock.advance("61 min")


def failed_and_scheduled(scene: Scene) -> None:
    """The schedule is of the same parcel."""
    scene.world.engine.set_schedule("a", "delivery", {"name": "a"}, Cadence(every="day", at="02:00", zone="UTC"))
    scene.failed()
    scene.world.clock.advance("1 day")


def expired(scene: Scene) -> None:
    scene.owned()
    scene.world.clock.advance("61 s")


def a_line(scene: Scene) -> None:
    scene.accept("ferry")
    scene.line = [scene.accepted("ferry") for _ in range(2)]


def a_line_past_its_deadline(scene: Scene) -> None:
    a_line(scene)
    scene.world.clock.advance("31 h")


def ahead_and_overdue(scene: Scene) -> None:
    scene.ahead()
    scene.leased.require(3600)
    scene.world.clock.advance("31 min")


def a_paused_line(scene: Scene) -> None:
    a_line(scene)
    scene.world.engine.pause("ferry", hours=1)
    scene.world.clock.advance("10 min")


def an_overdue_line_paused(scene: Scene) -> None:
    a_line(scene)
    scene.world.clock.advance("31 min")
    scene.world.engine.pause("ferry", hours=1)
    scene.world.clock.advance("10 min")


def just_before_its_deadline(scene: Scene) -> None:
    scene.accept()
    scene.world.clock.advance("1799 min")


def past_its_deadline(scene: Scene) -> None:
    scene.accept()
    scene.world.clock.advance("31 h")


def two_due_schedules(scene: Scene) -> None:
    for minute, key in enumerate("ab"):
        cadence = Cadence(every="day", at=f"02:0{minute}", zone="UTC")
        scene.world.engine.set_schedule(key, "tour", {"name": key}, cadence)
    scene.world.clock.advance("1 day")


def a_schedule_soon_due(scene: Scene) -> None:
    put_again(scene)(scene.world.engine)


def more_schedules_than_the_cap(scene: Scene) -> None:
    for minute, key in enumerate("abcde"):
        cadence = Cadence(every="day", at=f"02:0{minute}", zone="UTC")
        scene.world.engine.set_schedule(key, "tour", {"name": key}, cadence)
    scene.world.clock.advance("1 day")
    scene.world.watch.look()
    scene.world.engine.catch_up()
    scene.world.clock.advance("1 s")
    done = scene.world.worker.claim("work", job=None, ask=uuid4(), lease=LEASE)
    done.complete([], {})


def a_pause_fills_the_cap(scene: Scene) -> None:
    """What it holds has used the places; more of its schedules are due, and one of another pipeline."""
    engine = scene.world.engine
    for minute, key in enumerate("abcd"):
        engine.set_schedule(key, "delivery", {"name": key}, Cadence(every="day", at=f"02:0{minute}", zone="UTC"))
    scene.world.clock.advance("1 day")
    scene.world.watch.look()
    engine.catch_up()
    engine.pause("delivery", hours=100)
    engine.set_schedule("z", "tour", {"name": "z"}, Cadence(every="day", at="10:00", zone="UTC"))
    scene.world.clock.advance("2 h")


def owed(scene: Scene) -> None:
    scene.world.queues.mood = "away"
    for name in "abc":
        scene.accept(name=name)
    scene.world.queues.mood = "well"


def owed_and_owned(scene: Scene) -> None:
    scene.world.queues.mood = "away"
    scene.owned()
    scene.world.queues.mood = "well"


def only_the_head_failed(scene: Scene, replies: list[Any]) -> None:
    nothing_more(scene, replies)
    require(scene.now.failures.keys() <= {str(scene.job)}, "who waits for its turn has failed:", scene.now.failures)


def nothing_more(scene: Scene, replies: list[Any]) -> None:
    only(replies, dict, int)


def each_sent_once(scene: Scene, replies: list[Any]) -> None:
    nothing_more(scene, replies)
    sent = scene.world.queues.messages
    require(len(set(sent)) == len(sent) == 3, "a wake-up was sent twice, or not:", sent)


PAIRS: dict[str, tuple[Callable[[Scene], None], list[Callable[[Scene], Act]], Callable[[Scene, list[Any]], None]]] = {
    "claim / claim": (Scene.accept, [claim, claim], one_wins),
    "claim any / claim any": (Scene.accept, [claim_any, claim_any], one_wins),
    "claim / claim any": (Scene.accept, [claim, claim_any], one_wins),
    "claim any / the same ask again": (two_that_are_due, [the_same_ask, the_same_ask], the_same_claim),
    "claim / recover, a lost wake-up": (overdue, [claim, recover], at_most_one_wins),
    "claim / recover, a lost worker": (expired, [claim, recover, time_passes], at_most_one_wins),
    "claim / recover, at the deadline": (just_before_its_deadline, [claim, recover, time_passes], claimed_or_not),
    "finish / recover": (Scene.owned, [finish, recover, time_passes], told_the_truth("finished")),
    "finish in a transaction / recover": (
        Scene.owned,
        [finish_in_a_transaction, recover, time_passes],
        told_the_truth("finished"),
    ),
    "fail / recover": (Scene.owned, [fail, recover, time_passes], told_the_truth("failed")),
    "advance / recover": (Scene.owned, [advance, recover, time_passes], told_the_truth("advanced")),
    "wait / recover": (Scene.owned, [wait, recover, time_passes], told_the_truth("waiting")),
    "retry / recover": (Scene.owned, [retry, recover, time_passes], told_the_truth("retried")),
    "heartbeat / recover": (Scene.owned, [heartbeat, recover, time_passes], left(lambda scene: scene.row["records"])),
    "checkpoint / recover": (Scene.owned, [save, recover, time_passes], left(lambda scene: scene.row["checkpoint"])),
    "ledger / recover": (
        lambda scene: scene.owned(attempts=3),
        [note, recover, time_passes],
        left(lambda scene: scene.now.ledger),
    ),
    "hold / recover": (Scene.owned, [hold, recover, time_passes], answered(LeaseLost, dict)),
    "recover / recover and claim": (expired, [recover, recover_and_claim], at_most_one_wins),
    "recover / recover": (expired, [recover, recover], nothing_more),
    "recover / recover, a lost wake-up": (overdue, [recover, recover], nothing_more),
    "accept / accept": (lambda scene: None, [accept(), accept()], answered(Accepted)),
    "accept / accept of another pipeline": (lambda scene: None, [accept(), recall], answered(Accepted, SubjectBusy)),
    "accept / accept, while one is at work": (Scene.owned, [accept(2, insured=True), accept(3)], insured_all_the_same),
    "accept / finish": (Scene.owned, [accept(), finish], answered(Accepted)),
    "accept / fail": (Scene.owned, [accept(), fail], answered(Accepted)),
    "accept / cancel": (Scene.accept, [accept(), cancel], answered(Accepted, Outcome)),
    "accept / recover": (past_its_deadline, [accept(), recover], answered(Accepted, dict)),
    "requeue / accept": (Scene.failed, [requeue, accept()], answered(Accepted, SubjectBusy)),
    "requeue / requeue": (Scene.failed, [requeue, requeue], answered(Accepted, SubjectBusy)),
    "cancel / finish": (Scene.owned, [finish, cancel], cancelled_or_finished),
    "cancel / finish in a transaction": (Scene.owned, [finish_in_a_transaction, cancel], cancelled_or_finished),
    "cancel / claim": (Scene.accept, [claim, cancel], answered(Leased, Outcome)),
    "cancel / recover": (expired, [cancel, recover], answered(Outcome, dict)),
    "cancel / wait": (Scene.owned, [wait, cancel], answered(Outcome, Cancelled)),
    "discard / finish": (Scene.owned, [finish, discard], answered(bool)),
    "relay / relay": (owed, [relay, relay], each_sent_once),
    "relay / wait": (owed_and_owned, [relay, wait], nothing_more),
    "relay / finish": (owed_and_owned, [relay, finish], nothing_more),
    "relay / recover": (owed_and_owned, [relay, recover, time_passes], nothing_more),
    "catch-up / catch-up": (two_due_schedules, [catch_up, catch_up], as_many_as_they_say),
    "catch-up / catch-up, one place left": (more_schedules_than_the_cap, [catch_up, catch_up], nothing_more),
    "catch-up / catch-up, while a pause fills the cap": (
        a_pause_fills_the_cap,
        [catch_up, catch_up],
        another_one_starts,
    ),
    "catch-up / pause": (two_due_schedules, [catch_up, pause_tours], answered(dict, Pause)),
    "catch-up / resume": (a_pause_fills_the_cap, [catch_up, resume], answered(dict, bool)),
    "catch-up / the schedule is put again": (
        a_schedule_soon_due,
        [catch_up, put_again, time_passes],
        answered(dict, Schedule),
    ),
    "in line: accept / accept": (lambda scene: None, [get_in_line, get_in_line], answered(Accepted)),
    "in line: accept / finish": (
        lambda scene: scene.owned(pipeline="ferry"),
        [get_in_line, finish],
        answered(Accepted),
    ),
    "in line: accept / fail": (lambda scene: scene.owned(pipeline="ferry"), [get_in_line, fail], answered(Accepted)),
    "in line: accept / cancel": (
        lambda scene: scene.accept("ferry"),
        [get_in_line, cancel],
        answered(Accepted, Outcome),
    ),
    "in line: finish / claim of the next": (Scene.ahead, [finish, claim_the_next], answered(Leased)),
    "in line: finish / claim any": (Scene.ahead, [finish, claim_any], answered(Leased)),
    "in line: finish / cancel of the next": (Scene.ahead, [finish, cancel_the_next], answered(Outcome)),
    "in line: finish in a transaction / cancel of the next": (
        Scene.ahead,
        [finish_in_a_transaction, cancel_the_next],
        answered(Outcome),
    ),
    "in line: cancel / cancel of the next": (a_line, [cancel, cancel_the_next], answered(Outcome)),
    "in line: cancel of the next / cancel of the last": (
        a_line,
        [cancel_the_next, cancel_the_last],
        answered(Outcome),
    ),
    "in line: recover / accept": (a_line_past_its_deadline, [recover, get_in_line], answered(Accepted, dict)),
    "in line: recover / recover": (a_line_past_its_deadline, [recover, recover], only_the_head_failed),
    "in line: finish / recover what is held back": (ahead_and_overdue, [finish, recover], only_the_head_failed),
    "in line: recover / cancel of the next": (
        a_line_past_its_deadline,
        [recover, cancel_the_next],
        answered(Outcome, dict),
    ),
    "in line: resume / cancel": (a_paused_line, [resume_the_line, cancel], answered(bool, Outcome)),
    "in line: resume / recover": (an_overdue_line_paused, [resume_the_line, recover], answered(bool, dict)),
    "resume / resume of all": (paused_twice, [resume, resume_all], held_up(20, [True, True])),
    "resume of a whole / resume of all": (
        paused_twice_with_a_part,
        [resume_with_its_part, resume_all],
        held_up(20, [True, True]),
    ),
    "pause of a whole / resume of it": (
        paused_twice_with_a_part,
        [pause_with_its_part, resume_with_its_part],
        answered(Pause, bool),
    ),
    "resume / claim": (paused, [resume, claim], answered(bool, Leased)),
    "resume / accept": (paused, [resume, accept()], answered(bool, Accepted)),
    "resume / cancel": (paused, [resume, cancel], answered(bool, Outcome)),
    "resume / recover": (overdue_and_paused, [resume, recover], answered(bool, dict)),
    "resume / recover, a pause that is over": (pause_over, [resume, recover], held_up(61, [True])),
    "recover / recover, a pause that is over": (pause_over, [recover, recover], held_up(61, [True])),
    "claim / recover, a pause that is over": (pause_over, [claim, recover], claimed_or_not),
    "accept / recover, a pause that is over": (pause_over, [accept(), recover], answered(Accepted, dict)),
    "cancel / recover, a pause that is over": (pause_over, [cancel, recover], answered(Outcome, dict)),
    "wait / recover, a pause that is over": (pause_over_an_owner, [wait, recover], told_the_truth("waiting")),
    "catch-up / recover, a pause that is over": (
        pause_over_and_due_schedules,
        [catch_up, recover],
        as_many_as_they_say,
    ),
}


OWNERS = [finish, finish_in_a_transaction, fail, heartbeat, note, save, advance, wait, retry, hold]
CLAIMS = [claim, claim_any, claim_the_next]
RECOVERIES = [recover, recover_and_claim]
LATE = [late(recover), late(recover_and_claim)]

SURE: dict[str, list[Callable[[Scene], Act]]] = {
    "claim / recover, a lost worker": [recover],  # nobody claims what isn't recovered
    "claim / recover, a pause that is over": [recover],  # it ends the pause, whoever claims
    "wait / recover, a pause that is over": [wait, recover],  # an owner keeps its job
    "in line: finish / recover what is held back": [finish, recover],  # neither has the other's job
}
"""Who hears the same in every order of a pair, though he might lose elsewhere."""

ONE_END = [
    "resume / resume of all",  # each adds what the other has left of the same twenty minutes
    "resume of a whole / resume of all",
    "claim any / the same ask again",  # both hear of one claim
]
"""Pairs that end in one way alone."""


def told(scene: Scene, reply: Any) -> str:
    """What somebody heard, where it isn't the same for all."""
    match reply:
        case BaseException() | Leased():
            return type(reply).__name__
        case Accepted(created=True):
            return "behind another" if scene.now.jobs.get(str(reply.job.id), {}).get("held_back") else "created"
        case Accepted():
            return "joined"
        case dict():
            return ", ".join(sorted(reply.keys() - {"in_other_hands"}))
    return str(reply)


def end_in_words(scene: Scene, replies: list[Any]) -> tuple[list[str], str]:
    """Who heard what, and what became of the jobs."""
    jobs = {job["id"]: (job["state"], str(job["follow_up"])) for job in scene.now.jobs.values()}
    known = sorted({event["job_id"] for event in scene.now.events})
    events = [[known.index(event["job_id"]), event["kind"]] for event in scene.now.events]
    return [told(scene, reply) for reply in replies], json.dumps([events, [jobs.get(id) for id in known]])


def acts_meet(pair: str, acts: list[Callable[[Scene], Act]], ends: list[tuple[list[str], str]]) -> None:
    """Over its orders a pair ends in more than one way: who claims gets the job or not, owner and recovery each win."""
    require(len(set(map(str, ends))) > 1 or pair in ONE_END, "whoever is first, it ends alike:", ends[0])
    recovering = [act for act in acts if act in RECOVERIES]
    beside = [act for act in acts if act in CLAIMS + OWNERS]
    rivals = CLAIMS + (OWNERS if recovering else []) + (RECOVERIES if len(recovering + beside) > 1 else [])
    meeting = [number for number, act in enumerate(acts) if act in rivals and act not in SURE.get(pair, [])]
    nobody_hears_the_same({number: {replies[number] for replies, _ in ends} for number in meeting})


THREE: list[tuple[Callable[[Scene], None], *tuple[list[Callable[[Scene], Act]], ...]]] = [
    (Scene.owned, OWNERS, LATE, [accept(), recall, cancel, discard, relay, claim_any]),
    (Scene.ahead, OWNERS, LATE, [get_in_line, cancel, cancel_the_next, *CLAIMS[1:]]),
    (Scene.owned, OWNERS, [accept(), recall], [accept(3), cancel, discard, relay]),
    (Scene.ahead, OWNERS, [get_in_line, cancel_the_next], [get_in_line, cancel, *CLAIMS[1:]]),
    (Scene.accept, CLAIMS[:2], [*CLAIMS[:2], accept(), recall], [accept(3), cancel]),
    (overdue, [claim, recover], [claim_any, accept(), recall], [cancel, recover, relay]),
    (expired, RECOVERIES, [claim_any, accept(), recall], [cancel, recover, relay]),
    (overdue_and_paused, [resume], [claim, accept(), recall], [cancel, recover, relay]),
    (pause_over, [recover], [resume, claim, accept()], [cancel, recover, relay]),
    (failed_and_scheduled, [requeue], [requeue, accept(), recall], [catch_up]),
    (two_due_schedules, [catch_up], [catch_up, claim_any], [catch_up, relay]),
]
"""What there is before, and what each of the three may do."""


def triples(number: int) -> list[tuple[Callable[[Scene], None], list[Callable[[Scene], Act]]]]:
    """So many of them, the same ones each time: of each kind as many."""
    draw = random.Random(SEED)
    found = []
    for which in range(number):
        before, *choices = THREE[which % len(THREE)]
        found.append((before, [draw.choice(each) for each in choices]))
    return found


def orders_of(world: World, pair: str, most: int | None = MOST) -> int:
    """Run a pair through its orders; how many they were."""
    before, acts, judge = PAIRS[pair]
    ends = orders(world, before, acts, judge, most)
    acts_meet(pair, acts, ends)
    return len(ends)


def orders(
    world: World,
    before: Callable[[Scene], None],
    acts: list[Callable[[Scene], Act]],
    judge: Callable[[Scene, list[Any]], None],
    most: int | None,
) -> list[tuple[list[str], str]]:
    """Run acts through their orders; how each ended."""
    scene = Scene(world)
    ends: list[tuple[list[str], str]] = []

    def prepare() -> dict[str, Callable[[Database], Any]]:
        world.reset()
        scene.job = scene.leased = None
        scene.line = []
        before(scene)
        world.watch.look()

        def bound(act: Act) -> Callable[[Database], Any]:
            return lambda database: act(
                Engine(
                    database,
                    toy.PIPELINES,
                    world.settings,
                    world.queues,
                    monotonic=world.clock.monotonic,
                    sleep=world.clock.sleep,
                )
            )

        return {f"{number}: {act.__name__}": bound(act(scene)) for number, act in enumerate(acts, 1)}

    def after(replies: dict[str, Any]) -> None:
        scene.now = world.watch.look()
        only_known_errors(list(replies.values()))
        judge(scene, list(replies.values()))
        ends.append(end_in_words(scene, list(replies.values())))
        only_known_errors([world.engine.recover()])
        world.watch.after_recovery()
        world.watch.look()
        if len(ends) % 20 == 1:
            world.until_quiet()

    explore(world, prepare, after, most=most)
    return ends


@pytest.mark.parametrize("pair", PAIRS)
def test_every_order_ends_well(world, figures, pair):
    figures["orders"] = orders_of(world, pair)
    figures["pairs"] = 1


def lost_by_an_owner(ends: list[tuple[list[str], str]]) -> int:
    lost = sum(replies[0] == "LeaseLost" for replies, _ in ends)
    require(0 < lost < len(ends), "owner and recovery never met:", ends)
    return lost


@pytest.mark.parametrize("number", range(1000 if LONG else 15))
def test_three_at_once_end_well(world, figures, number):
    before, acts = triples(number + 1)[-1]
    ends = orders(world, before, acts, everybody_has_a_job, 60 if LONG else 15)
    figures["orders"], figures["triples"] = len(ends), 1
    if set(LATE) & set(acts):
        figures["lost by an owner"] = lost_by_an_owner(ends)


def end_of(scene: Scene, replies: list[Any]) -> str:
    """What there is after an order and who was told what, with an id's place instead of the id."""
    now = scene.now
    told = [
        {"job": str(reply.id), "claim_id": reply.claim_id} if isinstance(reply, Leased) else repr(reply)
        for reply in replies
    ]
    tables = [sorted(table.items()) for table in now.rows() if isinstance(table, dict)]
    events = [event | {"id": None} for event in now.events]  # they stand in its order
    text = json.dumps([events, tables, told, now.now.isoformat()])
    ids: dict[str, str] = {}
    return re.sub(ID, lambda found: ids.setdefault(found[0], f"{len(ids)}."), text)


SMALL = ["claim / claim", "cancel / finish", "claim / recover, a lost wake-up"]


@pytest.mark.parametrize("pair", [*SMALL, "finish / recover", "accept / accept"] if LONG else SMALL)
def test_orders_that_are_left_out_end_as_those_that_are_run(world, figures, monkeypatch, pair):
    before, acts, _ = PAIRS[pair]
    ends: list[str] = []

    def run() -> list[str]:
        ends.clear()
        orders(world, before, acts, lambda *end: ends.append(end_of(*end)), None)
        return list(ends)

    some = run()
    monkeypatch.setattr(Step, "meets", lambda step, other: True)
    every = run()
    assert set(some) == set(every)
    assert len(some) < len(every)
    figures["with nothing left out"] = len(every)


TRIAL = """
drop schema if exists trial cascade;
create schema trial;
create table trial.one (id int primary key, n int not null);
create table trial.two (id int primary key, n int not null);
insert into trial.one values (1, 1), (2, 2);
insert into trial.two values (1, 5);
create function trial.total() returns int language sql volatile as $$ select sum(n) from trial.two $$;
create sequence trial.number;
select nextval('trial.number');  -- it is logged for 32, so that the next one writes nothing
grant all on schema trial to leaseway_app;
grant all on all tables in schema trial to leaseway_app;
grant all on all sequences in schema trial to leaseway_app;
"""
NEXT = "select id from trial.one order by id limit 1 for update skip locked"
TAKEN = "insert into trial.one values (3, {}){} returning n"
MET = {
    "a number": ("select nextval('trial.number')", "select nextval('trial.number')"),
    "write skew": (
        "update trial.one set n = (select sum(n) from trial.two)",
        "update trial.two set n = (select sum(n) from trial.one)",
    ),
    "in a function": ("update trial.one set n = trial.total()", "update trial.two set n = n + 1"),
    "a row that is skipped": (NEXT, NEXT),
    "a row that is held": ("select from trial.one where id = 1 for key share", NEXT),
    "a place": (TAKEN.format(1, " on conflict do nothing"), TAKEN.format(2, " on conflict do nothing")),
    "a failure": (TAKEN.format(1, ""), TAKEN.format(2, "")),
    "a lock without a row": ("select pg_try_advisory_xact_lock(1)", "select pg_try_advisory_xact_lock(1)"),
}


@pytest.mark.parametrize("met", MET)
def test_what_statements_have_to_do_with_each_other_is_seen(world, monkeypatch, met):
    admin, ends = world.watch._connection, set()

    def prepare() -> dict[str, Callable[[Database], Any]]:
        admin.execute(TRIAL)
        return {str(number): lambda db, sql=sql: db.run(sql) for number, sql in enumerate(MET[met])}

    def judge(replies: dict[str, Any]) -> None:
        rows = admin.execute("select * from trial.one union all select * from trial.two order by id, n").fetchall()
        ends.add(repr((replies, rows)))

    def run() -> set[str]:
        ends.clear()
        explore(world, prepare, judge)
        return set(ends)

    some = run()
    monkeypatch.setattr(Step, "meets", lambda step, other: True)
    every = run()
    admin.execute("drop schema trial cascade")
    assert some == every
    assert len(some) > 1


def test_an_order_that_goes_another_way_the_next_time_is_told(world):
    first = iter([claim])

    def changing(scene: Scene) -> Act:
        return next(first, cancel)(scene)

    with pytest.raises(Violation, match="the same order went another way:"):
        orders(world, Scene.accept, [changing, claim], everybody_has_a_job, None)


@pytest.mark.parametrize(
    ("acts", "says"),
    [
        ([claim, recover], "whoever is first, it ends alike:"),
        ([claim, recover, cancel], "it hears the same in every order:"),
    ],
)
def test_acts_that_never_meet_are_told(world, acts, says):
    """Without time that passes nobody can claim what recovery has just given back."""
    ends = orders(world, expired, acts, at_most_one_wins, None)
    with pytest.raises(Violation, match=says):
        acts_meet("a pair", acts, ends)


def test_an_owner_that_recovery_never_meets_is_told(world):
    ends = orders(world, Scene.owned, [finish, recover, cancel], everybody_has_a_job, None)
    with pytest.raises(Violation, match="owner and recovery never met:"):
        lost_by_an_owner(ends)


def test_two_who_wait_for_each_other_are_told(world):
    """Whom the server then refuses is of no interest any more."""

    def locking(*pipelines: str) -> Callable[[Scene], Act]:
        def act(engine: Engine) -> None:
            with engine.db.transaction() as tx:
                for pipeline in pipelines:
                    tx.run("select from engine.pause where pipeline = %(pipeline)s for update", pipeline=pipeline)

        return lambda scene: act

    def paused_each(scene: Scene) -> None:
        for pipeline in ("tour", "ferry"):
            scene.world.engine.pause(pipeline)

    with pytest.raises(Violation, match="a deadlock:"):
        orders(world, paused_each, [locking("tour", "ferry"), locking("ferry", "tour")], nothing_more, None)


def test_who_comes_to_no_end_and_waits_for_nobody_is_told(world, monkeypatch):
    monkeypatch.setattr(interleaving, "PATIENCE", 0.1)

    def slow(scene: Scene) -> Act:
        return lambda engine: engine.db.run("select pg_sleep(0.4)")

    with pytest.raises(Violation, match="neither a point nor a lock:"):
        orders(world, Scene.accept, [slow, claim], nothing_more, None)
