"""Chaos: the whole stack with real function processes, and everything that can fail, failing, all the time.

CHAOS_JOBS goes on until so many jobs are accepted (PROVE=long: 5,000 in each of 20 runs, a seed each); CHAOS_SEED names
the plan, of one run, CHAOS_SECONDS the least time.
"""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from tests.proof.chaos.broken import BROKEN, Broken
from tests.proof.chaos.callers import Callers, Pace
from tests.proof.chaos.faults import LANES, Disturber, Journal
from tests.proof.chaos.gathering import clean_up, gathered, said_of
from tests.proof.chaos.history import History, lost_claims, taken_claims, unexplained, violations
from tests.proof.chaos.stage import Stage, staged
from tests.proof.conftest import LONG

SEED = int(os.environ.get("CHAOS_SEED", "20261130"))
SEEDS = range(20) if LONG and "CHAOS_SEED" not in os.environ else (SEED,)
"""A run each, on a stack of its own: what has run stays proven when a long night is stopped, and memory is bounded."""

SECONDS = float(os.environ.get("CHAOS_SECONDS", "90"))
JOBS = int(os.environ.get("CHAOS_JOBS", "5000" if LONG else "0"))
DRAIN = 120
"""Seconds in which everything ends once nothing fails any more: the longest lease, three attempts, a lost wake-up."""

MORE = 60
"""Seconds more for a machine on which not every fault has found somebody in that time."""

WARM = 90
"""Seconds in which one job of each kind is done: the functions' first start is slow on a busy machine."""

LEAST = {kind: 1 for kinds, _, _ in LANES.values() for kind in kinds} | {
    "jobs": 80,
    "publications": 10,
    "killed": 10,
    "zombies": 4,
    "left open": 2,
    "connections ended": 8,
    "duplicates": 150,
    "SQS": 12,
    "object storage": 10,
    "triple store": 6,
    "data service": 5,
}
"""Whom a run must have hit: each kind of fault, and of each family so many. With fewer it has proven nothing of it."""

EACH = 1500
"""Jobs of a long run that must have met as much once more: it has three times as many a second as a short one."""

MANY = Pace(counts=16, load=0.5, publication=2, refresh=3, faults=2)
"""Jobs that are cheap, of many datasets, for who lost a worker holds up his dataset; and faults for each of them."""

TOLD = ("jobs", "publications", "histories", "claims lost", "killed", "zombies", "left open")
"""What the table at the end tells of it."""


@dataclass
class Run:
    """What came of it."""

    history: History
    journal: Journal
    drained: bool
    errors: list[BaseException]
    seconds: dict[str, float]
    seed: int
    least: dict[str, int]
    wrong: list[str] = field(default_factory=list)
    found: Counter[str] = field(default_factory=Counter)
    said: list[str] = field(default_factory=list)
    """What log and events have of attempts that ended, and no fault says why."""


@pytest.mark.parametrize("seed", SEEDS, ids=lambda seed: f"seed-{seed:02}")
def test_whatever_fails_every_job_ends_once_and_readers_see_whole_things(seed: int, figures: dict[str, int]) -> None:
    run = ran(seed, JOBS)

    tell(run)
    assert not run.errors
    assert not run.wrong, "\n".join(run.wrong[:20])
    assert run.drained
    missed = missing(run.found, run.least)
    assert not missed, f"too few to prove anything: {missed}"
    figures |= {what: run.found[what] for what in TOLD}


@pytest.mark.long
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_product_is_caught(
    name: str, figures: dict[str, int], record_property: Callable[[str, object], None]
) -> None:
    run = ran(SEED, 0, BROKEN[name])

    tell(run)
    checks = [text for text in run.wrong if text.startswith(f"{BROKEN[name].caught_by}:")]
    assert checks, "the history says nothing of it"
    record_property("caught by", f"{name:<45} {checks[0][:200]}")
    figures["twins caught"] = 1


def ran(seed: int, jobs: int, broken: Broken | None = None) -> Run:
    """A whole run: until so many jobs are accepted, or, with 0, as long as CHAOS_SECONDS says."""
    journal, times, pace = Journal(), {}, MANY if jobs else Pace()
    least = {what: number * max(1, jobs // EACH) for what, number in LEAST.items()}
    began = time.monotonic()

    def passed(what: str) -> None:
        times[what] = time.monotonic() - began - sum(times.values())

    with staged(pace.counts, broken) as stage:
        callers = Callers(stage, pace, most=jobs or None)
        disturber = Disturber(stage, journal, seed, pace.faults, callers)
        passed("staged")
        with callers.busy():
            assert callers.begun(WARM), f"nothing was done, though nothing failed yet: {callers.errors}"
            passed("warm")
            disturb(stage, disturber, callers, least)
            passed("disturbed")
            drained = callers.drained(DRAIN)
            passed("drained")
        clean_up(stage)
        history = gathered(stage, callers, journal, seed)
        said = [line for taken in unexplained(history)[:3] for line in said_of(stage, history, taken)]
        passed("read")
    passed("down")
    run = Run(history, journal, drained, disturber.errors + callers.errors, times, seed, least)
    run.wrong, run.found, run.said = violations(history), counted(history, journal), said
    return run


def disturb(stage: Stage, disturber: Disturber, callers: Callers, least: dict[str, int]) -> None:
    """The first third with the data service that is built in; then a deployment changes it for another one."""
    journal, jobs = disturber.journal, callers.most
    began, journal.began = time.monotonic(), time.time()
    with disturber.disturbing():
        while not callers.errors:
            passed = time.monotonic() - began
            if (len(callers.accepted) / jobs if jobs else passed / SECONDS) > 1 / 3 and not stage.elsewhere:
                at = time.time()
                stage.another_data_service()
                journal.note("deployed", at)
            if jobs is not None:
                over = len(callers.accepted) >= jobs
            else:
                over = passed > SECONDS + (MORE if missing(met(callers, journal), least) else 0)
                if passed > SECONDS - 20:
                    disturber.short.set()
            if over:
                return
            time.sleep(0.3)


def missing(found: Counter[str], least: dict[str, int]) -> dict[str, int]:
    """What was hit less often than it has to be in a whole run."""
    return {what: found[what] for what, number in least.items() if found[what] < number}


def met(callers: Callers, journal: Journal) -> Counter[str]:
    """What it has hit till now."""
    kinds = Counter(asked.kind for asked in list(callers.accepted.values()))
    return hit(journal) + Counter({"jobs": kinds.total(), "publications": kinds["publication"]})


def hit(journal: Journal) -> Counter[str]:
    """Each kind of fault, and the families."""
    hits = journal.hits()
    families = ("killed", "left open", "SQS", "object storage", "triple store", "data service")
    for family in families:
        hits[family] += sum(number for kind, number in journal.hits().items() if kind.startswith(f"{family} "))
    hits["zombies"] = sum(number for kind, number in journal.hits().items() if kind.startswith("stopped"))
    return hits


def counted(history: History, journal: Journal) -> Counter[str]:
    """What the run has really met."""
    kinds = Counter(job["pipeline"] for job in (*history.jobs.values(), *history.failures.values()))
    return hit(journal) + Counter(
        {
            "jobs": kinds.total(),
            "publications": kinds["publication"],
            "histories": history.subjects(),
            "claims lost": len(lost_claims(history)),
            "of these unexplained": len(unexplained(history)),
            "failed": len(history.failures),
        }
    )


def tell(run: Run) -> None:
    print(f"\nchaos, CHAOS_SEED={run.seed} CHAOS_SECONDS={SECONDS:g} CHAOS_JOBS={JOBS}; what hit, and when:")
    for line in list(run.journal.lines())[:400]:
        print(f"  {line}")
    pipelines = Counter(job["pipeline"] for job in run.history.jobs.values())
    codes = Counter(f"{f['pipeline']} {f['code']}" for f in run.history.failures.values())
    print(f"  {dict(pipelines)} finished, {dict(codes)} failed")
    for what, times in Counter(answer.what for answer in run.history.answers).items():
        print(f"  {times} requests sent again after {what}")
    print(f"  {dict(run.found)}")
    ended = Counter(taken.code for taken in taken_claims(run.history))
    print(f"  attempts were ended by {dict(ended)}")
    print("  " + ", ".join(f"{what} {seconds:.0f} s" for what, seconds in run.seconds.items()))
    for line in run.wrong[:40]:
        print(f"  VIOLATION {line}")
    for line in run.said:
        print(f"    {line}")
