"""Chaos: the whole stack with real function processes, and everything that can fail, failing, all the time.

PROVE=long goes on until CHAOS_JOBS jobs (100,000) are accepted; CHAOS_SEED names the schedule, CHAOS_SECONDS the length
of a round.
"""

import os
import time
from collections import Counter

import pytest

from tests.proof.chaos.callers import Callers
from tests.proof.chaos.faults import Disturber, Fault, Journal, schedule
from tests.proof.chaos.gathering import clean_up, gathered
from tests.proof.chaos.history import History, lost_claims, unexplained, violations
from tests.proof.chaos.stage import Stage, staged
from tests.proof.conftest import LONG

SEED = int(os.environ.get("CHAOS_SEED", "20261130"))
SECONDS = float(os.environ.get("CHAOS_SECONDS", "90"))
JOBS = int(os.environ.get("CHAOS_JOBS", "100000" if LONG else "0"))
DRAIN = 120
"""Seconds in which everything ends once nothing fails any more: the longest lease, three attempts, a lost wake-up."""

MORE = 90
"""Seconds more for a machine on which not every fault has found somebody in that time."""

WARM = 90
"""Seconds in which the first load is done: the functions' first start is slow on a busy machine."""

LEAST = {
    "jobs": 25,
    "claims lost": 5,
    "zombies": 1,
    "transactions left open": 1,
    "database restarts": 1,
    "connections ended": 3,
    "duplicates": 50,
    "SQS": 3,
    "object storage": 1,
    "triple store": 1,
    "data service": 1,
}
"""Of 90 seconds; with fewer of one the run has proven nothing of it."""


@pytest.mark.long
def test_whatever_fails_every_job_ends_once_and_readers_see_whole_things(
    figures: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    journal = Journal()
    with staged() as stage:
        disturber, callers = Disturber(stage, journal, SEED), Callers(stage, most=JOBS or None)
        with callers.busy():
            assert callers.begun(WARM), "nothing was done, though nothing failed yet"
            journal.began = time.time()
            _disturb(stage, disturber, callers, journal)
            drained = callers.drained(DRAIN)
        time.sleep(1)
        clean_up(stage)
        history = gathered(stage, callers, journal, SEED)

    wrong = violations(history)
    found = counted(history)
    with capsys.disabled():
        _tell(journal, history, found, wrong, callers.asked_again)
    assert not disturber.errors
    assert not callers.errors
    assert not wrong, "\n".join(wrong[:20])
    assert drained
    missed = {what: found[what] for what, least in LEAST.items() if found[what] < least * min(1, SECONDS / 90)}
    assert not missed, f"too few to prove anything: {missed}"
    figures |= {"seeds": 1, **found}


def _disturb(stage: Stage, disturber: Disturber, callers: Callers, journal: Journal) -> None:
    """The first half with the data service that is built in; then a deployment changes it for another one."""
    end = time.monotonic() + (float("inf") if JOBS else SECONDS + MORE)
    rounds, deployed = 0, False
    while time.monotonic() < end and not (len(callers.accepted) >= JOBS if JOBS else rounds and _met(journal, callers)):
        planned = schedule(disturber.seed + rounds, SECONDS)
        with disturber.disturbing(planned):
            for half in range(2):
                _wait(min(SECONDS / 2, end - time.monotonic()), callers, journal if rounds and not JOBS else None)
                if half == 0 and not deployed:
                    began, deployed = time.time(), True
                    stage.another_data_service()
                    journal.note("deployed", began)
        disturber.stop.clear()
        rounds += 1


def _met(journal: Journal, callers: Callers) -> bool:
    """Whether each kind of fault has hit somebody: a busy machine gets more time for that."""
    twice = ("stopped", "killed")
    once = ("left open", "database", "connections", "SQS", "object storage", "triple store", "data service")
    met = [sum(fault.kind.startswith(kind) for fault in list(journal.faults)) for kind in (*twice, *once)]
    return len(callers.accepted) >= LEAST["jobs"] and min(met[:2]) > 1 and min(met) > 0


def _wait(seconds: float, callers: Callers, enough: Journal | None = None) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end and not (JOBS and len(callers.accepted) >= JOBS) and not callers.errors:
        if enough and _met(enough, callers):
            return
        time.sleep(0.2)


def counted(history: History) -> Counter[str]:
    """What the run has really met."""
    lost = lost_claims(history)
    ended = {claim: at for _, claim, _, at in lost}

    def hits(*beginnings: str) -> int:
        return sum(fault.hits for fault in history.faults if fault.kind.startswith(beginnings))

    def woke(fault: Fault) -> bool:
        return fault.kind == "stopped" and fault.claim in ended and ended[fault.claim] <= fault.ended

    return Counter(
        {
            "jobs": len(history.jobs) + len(history.failures),
            "histories": history.subjects(),
            "claims lost": len(lost),
            "of these unexplained": len(unexplained(history)),
            "kills": hits("killed"),
            "zombies": sum(map(woke, history.faults)),
            "transactions left open": hits("left open"),
            "database restarts": hits("database"),
            "connections ended": hits("connections"),
            "duplicates": hits("duplicates"),
            "SQS": hits("SQS"),
            "object storage": hits("object storage"),
            "triple store": hits("triple store"),
            "data service": hits("data service"),
            "failed": len(history.failures),
        }
    )


def _tell(journal: Journal, history: History, found: Counter[str], wrong: list[str], again: Counter[str]) -> None:
    print(f"\n\nchaos, CHAOS_SEED={SEED} CHAOS_SECONDS={SECONDS:g}; what hit, and when:")
    for line in list(journal.lines())[:400]:
        print(f"  {line}")
    pipelines = Counter(job["pipeline"] for job in history.jobs.values())
    codes = Counter(f"{f['pipeline']} {f['code']}" for f in history.failures.values())
    print(f"  {dict(pipelines)} finished, {dict(codes)} failed; requests sent again: {dict(again)}")
    print(f"  {dict(found)}")
    for line in wrong[:40]:
        print(f"  VIOLATION {line}")
