"""The checker of the chaos must be able to fail: each of these histories is wrong in one place."""

from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import pytest

from tests.proof.chaos.faults import LANES, Fault, Planned, plan
from tests.proof.chaos.history import (
    CHECKS,
    Answer,
    Asked,
    History,
    Look,
    Seen,
    content,
    lost_claims,
    unexplained,
    violations,
)

BASE = "http://localhost:4000"
GRAPH = f"{BASE}/datasets/stock"
BEGAN = datetime(2026, 3, 2, 9, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def events(job: str, *told: tuple[str, float, int | None, int], code: str | None = None) -> list[dict[str, Any]]:
    details = {"code": code} if code else {}
    return [
        {"job_id": job, "kind": kind, "at": at(second), "claim_id": claim, "attempts": attempts, "details": details}
        for kind, second, claim, attempts in told
    ]


def done(pipeline: str, claim: int, **more: Any) -> dict[str, Any]:
    job = {"pipeline": pipeline, "subject": {}, "state": "DONE", "attempts": 1, "claim_id": claim, "version": None}
    return job | {"finished_at": at(30), "order_number": None, **more}


def look(table: str, second: float, generation: int) -> Look:
    return Look(table, at(second).timestamp(), generation)


def fault(kind: str, began: float, ended: float, **more: Any) -> Fault:
    return Fault(kind, at(began).timestamp(), at(ended).timestamp(), **more)


def whole() -> History:
    """A publication whose first worker was killed, two loads, a refresh, and a load that lost three workers."""
    history = History(
        BASE,
        {
            "publication": Asked("publication", "stock"),
            "count": Asked("load", "counts", 1),
            "stock": Asked("load", "stock", 1),
            "refresh": Asked("refresh", ""),
            "lost": Asked("load", "counts", 2),
        },
        contracts={"readings"},
        rows_of_a_load=3,
        records=200,
    )
    history.jobs = {
        "publication": done("publication", 3, version=1, attempts=2, subject={"dataset": "stock"}),
        "count": done("load", 4, subject={"dataset": "counts"}, order_number=1, id="count"),
        "stock": done("load", 5, subject={"dataset": "stock"}, order_number=1, id="stock"),
        "refresh": done("refresh", 6, version=1),
    }
    history.failures = {
        "lost": {
            "pipeline": "load",
            "subject": {"dataset": "counts"},
            "code": "attempts_exhausted",
            "details": {"step": "LOAD"},
            "attempts": 3,
        }
    }
    history.events = [
        *events(
            "publication",
            ("accepted", 0, None, 0),
            ("claimed", 1, 1, 1),
            ("worker_lost", 12, 1, 1),
            ("claimed", 13, 2, 2),
            ("waiting", 14, 2, 2),
            ("claimed", 20, 3, 2),
            ("finished", 30, 3, 2),
        ),
        *events("count", ("accepted", 0, None, 0), ("claimed", 1, 4, 1), ("finished", 30, 4, 1)),
        *events("stock", ("accepted", 0, None, 0), ("claimed", 1, 5, 1), ("finished", 30, 5, 1)),
        *events("refresh", ("accepted", 0, None, 0), ("claimed", 1, 6, 1), ("finished", 30, 6, 1)),
        *events(
            "lost",
            ("accepted", 0, None, 0),
            ("claimed", 1, 7, 1),
            ("worker_lost", 12, 7, 1),
            ("claimed", 13, 8, 2),
            ("worker_lost", 24, 8, 2),
            ("claimed", 26, 9, 3),
            ("failed", 37, 9, 3),
            code="attempts_exhausted",
        ),
    ]
    history.datasets = {"stock": {"last_version": 1, "current_version": 1}}
    file = {"key": "exports/x/2/stock.csv", "sha256": "ab"}
    history.versions = [{"dataset_id": "stock", "number": 1, "job_id": "publication", "fence": 3, "files": [file]}]
    history.versions[0] |= {"content": "one", "size": 9}
    history.loads = {name: {"rows": 3, "inserted": 3, "updated": 0, "deleted": 0} for name in ("count", "stock")}
    history.counts, history.stock = {("counts", 1): 3}, {1}
    history.audits = [
        {"job_id": "refresh", "contract": "readings", "table": "mart.readings", "outcome": "refreshed", "fence": 6}
    ]
    history.audits[0] |= {"started_at": at(20), "finished_at": at(29)}
    history.turns = [(at(10).timestamp(), 4), (at(19).timestamp(), 5), (at(28).timestamp(), 6)]
    history.looks = [look("mart.readings", 22, 4), look("store.stock", 25, 0), look("mart.readings", 30, 5)]
    history.targets = {"mart.readings": (200, 1)}
    history.graphs = {GRAPH: Seen(GRAPH, (3,), 1, "one", 9)}
    history.seen = [Seen(GRAPH, (), 0, "empty"), Seen(GRAPH, (3,), 1, "one", 9)]
    history.objects = {"exports/x/2/stock.csv": "ab"}
    history.generations = {"exports/x/2/stock.csv": {"1"}}
    history.ledger = [{"status": "kept", "kind": "s3_object", "locator": {"key": "exports/x/2/stock.csv"}}]
    history.faults = [fault("killed", second, second, claim=claim) for second, claim in ((2, 1), (2, 7), (14, 8))]
    history.faults.append(fault("database crashed", 27, 29))
    history.answers = [Answer("/loads", at(26).timestamp(), at(28).timestamp(), "503")]
    return history


def test_a_history_in_which_everything_is_right_has_no_violation() -> None:
    assert violations(whole()) == []
    assert sorted(taken.claim for taken in lost_claims(whole())) == [1, 7, 8, 9]
    assert unexplained(whole()) == []


def replaced(history: History, began: float, ended: float, kind: str = "database crashed", **more: Any) -> Fault:
    """Another fault in the place of the last one, which took the last lease."""
    history.faults.pop()
    return fault(kind, began, ended, **more)


def spent(history: History, pipeline: str, code: str, *kinds: str, subject: dict[str, str] | None = None) -> None:
    """A job fails with this code in three attempts, while there is a fault."""
    if pipeline != "export":
        history.accepted["spent"] = Asked(pipeline, "stock")
    history.failures["spent"] = {
        "pipeline": pipeline,
        "subject": subject or {"dataset": "stock"},
        "code": code,
        "details": {"step": "PERSIST_DATA"},
        "attempts": 3,
    }
    told = [("accepted", 21, None, 0), *[("claimed", 22, 20, 1), ("retried", 23, 20, 1)]]
    told += [("claimed", 24, 21, 2), ("retried", 25, 21, 2), ("claimed", 26, 22, 3), ("failed", 27, 22, 3)]
    history.events += events("spent", *told, code=code)
    history.faults += [fault(kind, 22, 27) for kind in kinds]


def another_load(history: History, first: int, second: int, ended: float = 29) -> None:
    """It stands behind the other one, and is right in all else."""
    history.accepted |= {"count": Asked("load", "counts", first), "next": Asked("load", "counts", second)}
    job = done("load", 30, subject={"dataset": "counts"}, order_number=2, id="next")
    history.jobs["next"] = job | {"finished_at": at(ended)}
    history.events += events("next", ("accepted", 1, None, 0), ("claimed", 29, 30, 1), ("finished", ended, 30, 1))
    history.loads["next"] = history.loads["count"]
    history.counts["counts", 2] = 3
    history.accepted["lost"] = Asked("load", "counts", 9)


def published_again(history: History, name: str = "again", follows: str | None = None) -> None:
    number, claim = len(history.versions) + 1, 30 + len(history.versions)
    history.jobs[name] = done("publication", claim, version=number, subject={"dataset": "stock"})
    told = events(name, ("accepted", 31, None, 0), ("claimed", 32, claim, 1), ("finished", 33, claim, 1))
    history.events += [event | {"details": {"follows": follows} if follows else {}} for event in told]
    version = {"number": number, "job_id": name, "fence": claim, "content": name, "size": 9, "files": []}
    history.versions.append(version | {"dataset_id": "stock"})
    history.datasets["stock"] = {"last_version": number, "current_version": number}
    history.graphs[GRAPH] = Seen(GRAPH, (claim,), 1, name, 9)


WRONG: dict[str, tuple[str, Callable[[History], object]]] = {
    "a 202 that is nowhere": ("lost_jobs", lambda h: h.accepted.update(gone=Asked("load", "counts", 9))),
    "a job that hasn't ended": ("lost_jobs", lambda h: h.jobs["count"].update(finished_at=None)),
    "a job in two places": ("lost_jobs", lambda h: h.failures.update(count=h.failures["lost"])),
    "an end that comes twice": (
        "lost_jobs",
        lambda h: h.events.extend(events("count", ("finished", 31, 4, 1))),
    ),
    "a heartbeat after the end": ("lost_jobs", lambda h: h.events.extend(events("count", ("advanced", 31, 4, 1)))),
    "a job that nobody accepted": ("lost_jobs", lambda h: h.jobs.update(more=done("export", 99))),
    "a failure without its record": ("lost_jobs", lambda h: h.failures.pop("lost")),
    "one 202 and two publications": ("doubled_jobs", lambda h: published_again(h)),
    "a publication followed by two": (
        "doubled_jobs",
        lambda h: [published_again(h, name, follows="publication") for name in ("again", "and again")],
    ),
    "a load of another dataset than was asked for": (
        "doubled_jobs",
        lambda h: h.accepted.update(count=Asked("load", "stock", 1)),
    ),
    "an export of no publication": (
        "doubled_jobs",
        lambda h: spent(h, "export", "internal_error", subject={"key": "gone"}),
    ),
    "a zombie that advances": (
        "two_owners",
        lambda h: h.events.insert(4, events("publication", ("advanced", 13.5, 1, 2))[0]),
    ),
    "a zombie that finishes": ("two_owners", lambda h: h.jobs["publication"].update(claim_id=1)),
    "a fence that is given twice": ("two_owners", lambda h: h.events[3].update(claim_id=1)),
    "an attempt that wasn't counted": ("miscounted_attempts", lambda h: h.events[3].update(attempts=1)),
    "a fourth attempt": (
        "miscounted_attempts",
        lambda h: h.events.extend(
            events("publication", *[("retried", 31, 3, 2), ("claimed", 32, 10, 3)] * 3),
        ),
    ),
    "a version's number left out": ("doubled_versions", lambda h: h.versions[0].update(number=2)),
    "a publication with two versions": (
        "doubled_versions",
        lambda h: h.versions.append(deepcopy(h.versions[0]) | {"number": 2, "fence": 4}),
    ),
    "a publication without a version": ("doubled_versions", lambda h: h.versions.clear()),
    "a version of a lost claim": ("doubled_versions", lambda h: h.versions[0].update(fence=1)),
    "a dataset that counts wrong": ("doubled_versions", lambda h: h.datasets["stock"].update(last_version=2)),
    "rows that are missing": ("doubled_loads", lambda h: h.counts.update({("counts", 1): 2})),
    "rows of a load that failed": ("doubled_loads", lambda h: h.counts.update({("counts", 2): 3})),
    "rows in another dataset": ("doubled_loads", lambda h: h.counts.update({("counts2", 1): 3})),
    "rows of nobody": ("doubled_loads", lambda h: h.counts.update({("counts", 77): 3})),
    "a load that was written twice": ("doubled_loads", lambda h: h.loads["count"].update(inserted=0, updated=3)),
    "loads that stand in line otherwise than they were asked for": (
        "doubled_loads",
        lambda h: another_load(h, 2, 1, ended=30),
    ),
    "a stock that went back": (
        "doubled_loads",
        lambda h: h.looks.extend([look("store.stock", 31, 2), look("store.stock", 32, 1)]),
    ),
    "a load without a record": ("doubled_loads", lambda h: h.loads.pop("stock")),
    "a stock of two loads": ("doubled_loads", lambda h: h.stock.add(0)),
    "loads that overtook each other": ("doubled_loads", lambda h: another_load(h, 1, 2)),
    "a contract without its audit": ("doubled_refreshes", lambda h: h.audits.clear()),
    "a contract audited twice": ("doubled_refreshes", lambda h: h.audits.append(deepcopy(h.audits[0]))),
    "an audit by a stranger": ("doubled_refreshes", lambda h: h.audits[0].update(fence=5)),
    "an audit by a zombie": (
        "doubled_refreshes",
        lambda h: h.events.extend(events("refresh", ("worker_lost", 28, 6, 1))),
    ),
    "a target that went back": (
        "doubled_refreshes",
        lambda h: h.looks.extend([look("mart.readings", 31, 7), look("mart.readings", 32, 6)]),
    ),
    "a target older than what its refresh has read": (
        "doubled_refreshes",
        lambda h: h.looks.append(h.looks.pop() and look("mart.readings", 30, 4)),
    ),
    "a target of two generations": ("doubled_refreshes", lambda h: h.targets.update({"mart.readings": (200, 2)})),
    "a graph with two fences": ("mixed_graphs", lambda h: h.seen.append(Seen(GRAPH, (2, 3), 1, "one"))),
    "a graph of two versions": ("mixed_graphs", lambda h: h.seen.append(Seen(GRAPH, (2,), 2, "two"))),
    "one fence, two documents": (
        "mixed_graphs",
        lambda h: h.seen.extend([Seen(GRAPH, (2,), 1, "two"), Seen(GRAPH, (2,), 1, "three")]),
    ),
    "half a document": ("mixed_graphs", lambda h: h.seen.append(Seen(GRAPH, (3,), 1, "half"))),
    "a graph of a late write": ("mixed_graphs", lambda h: h.seen.append(Seen(GRAPH, (2,), 1, "old"))),
    "a graph that lost its fence": ("mixed_graphs", lambda h: h.seen.append(Seen(GRAPH, (), 0, "empty"))),
    "a graph that stayed behind": ("mixed_graphs", lambda h: h.graphs.update({GRAPH: Seen(GRAPH, (2,), 1, "old")})),
    "a document without a fence": ("mixed_graphs", lambda h: h.seen.insert(0, Seen(GRAPH, (), 1, "anything", 9))),
    "half a document under the fence of a lost claim": (
        "mixed_graphs",
        lambda h: h.seen.insert(1, Seen(GRAPH, (1,), 0, "half", 4)),
    ),
    "a staging graph": ("mixed_graphs", lambda h: h.graphs.update({"urn:s:1": Seen("urn:s:1", (1,), 1, "one")})),
    "a file of a lost claim": ("wrong_files", lambda h: h.objects.update({"exports/x/1/stock.csv": "cd"})),
    "a file that is gone": ("wrong_files", lambda h: h.objects.clear()),
    "a file that was written over": ("wrong_files", lambda h: h.objects.update({"exports/x/2/stock.csv": "cd"})),
    "a file of two generations": ("wrong_files", lambda h: h.generations["exports/x/2/stock.csv"].add("2")),
    "garbage that stays": ("wrong_files", lambda h: h.ledger[0].update(status="garbage")),
    "an open upload": ("wrong_files", lambda h: h.left.append("an open upload of exports/x/1/stock.csv")),
    "an answer that nobody should get": ("wrong_answers", lambda h: h.unexpected.append("/loads: 500")),
    "an answer that no fault explains": (
        "wrong_answers",
        lambda h: h.answers.append(Answer("/loads", at(40).timestamp(), at(41).timestamp(), "500")),
    ),
    "a failure by an outage": (
        "failed_by_an_outage",
        lambda h: h.failures["lost"].update(code="triple_store_unreachable", attempts=1),
    ),
    "a failure before its last attempt": ("failed_by_an_outage", lambda h: h.failures["lost"].update(attempts=2)),
    "a publication cancelled by nobody": ("failed_by_an_outage", lambda h: spent(h, "publication", "cancelled")),
    "an export cancelled while it is needed": (
        "failed_by_an_outage",
        lambda h: spent(h, "export", "cancelled", subject={"key": "publication"}),
    ),
    "a lease that no fault took": ("spent_attempts", lambda h: h.faults.pop()),
    "a lease lost once the database was back": ("spent_attempts", lambda h: h.faults.append(replaced(h, 25, 25.9))),
    "a lease lost beside another's session": (
        "spent_attempts",
        lambda h: h.faults.append(replaced(h, 30, 30, "connections ended", claim=3)),
    ),
    "two leases lost by the end of one session": (
        "spent_attempts",
        lambda h: [
            h.faults.append(replaced(h, 30, 30, "connections ended", about="Worker", maybe=(1, 9))),
            h.faults.pop(0),
        ],
    ),
    "a lease lost beside a session that was one of two others'": (
        "spent_attempts",
        lambda h: h.faults.append(replaced(h, 30, 30, "connections ended", about="Worker", maybe=(3, 4))),
    ),
    "a lease lost beside a session that was idle": (
        "spent_attempts",
        lambda h: h.faults.append(replaced(h, 30, 30, "idle connections ended", about="Worker")),
    ),
    "a claim made after the end of a session that was idle": (
        "spent_attempts",
        lambda h: h.faults.append(replaced(h, 24, 24.5, "idle connections ended", about="Worker")),
    ),
    "a worker whose claim was hit, and says a defect": (
        "spent_attempts",
        lambda h: [spent(h, "publication", "internal_error"), h.faults.append(fault("killed", 23, 23, claim=20))],
    ),
    "attempts spent by an outage": (
        "spent_attempts",
        lambda h: spent(h, "publication", "triple_store_unreachable", "triple store away"),
    ),
    "attempts spent by a bug beside duplicates": (
        "spent_attempts",
        lambda h: spent(h, "publication", "internal_error", "duplicates"),
    ),
    "a publication that failed by itself": (
        "failed_by_an_outage",
        lambda h: h.failures.update(publication=h.failures["lost"] | {"pipeline": "publication", "attempts": 1}),
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_history_that_is_wrong_in_one_place_is_caught(wrong: str) -> None:
    check, spoil = WRONG[wrong]
    history = whole()

    spoil(history)

    assert check in {found.partition(":")[0] for found in violations(history)}


def test_a_history_may_have_what_the_engine_starts_by_itself() -> None:
    history = whole()
    published_again(history, follows="publication")
    spent(history, "export", "cancelled", subject={"key": "again"})
    history.events[-1]["at"] = at(34)

    assert violations(history) == []


@pytest.mark.parametrize(
    ("kind", "at", "maybe"),
    [
        ("connections ended", 30, (3, 9)),
        ("connections ended", 25.5, ()),
        ("idle connections ended", 25.5, (3,)),
    ],
)
def test_the_end_of_a_session_of_a_worker_explains_one_lease_of_those_that_it_may_have_had(
    kind: str, at: float, maybe: tuple[int, ...]
) -> None:
    """Claims seen there before or after it, or one that was made between the two."""
    history = whole()
    history.faults.append(replaced(history, at, at + 1, kind, about="Worker", maybe=maybe))

    assert unexplained(history) == []


def test_every_check_has_a_history_that_it_alone_is_there_for() -> None:
    assert {check for check, _ in WRONG.values()} == {check.__name__ for check in CHECKS}


def test_a_document_is_the_same_however_it_is_written() -> None:
    stored = '<urn:a> <urn:b> "B\\u00E4ume"@de .\n<urn:a> <urn:leaseway:fence> 3 .\n'.replace(
        " 3 .", ' "3"^^<http://www.w3.org/2001/XMLSchema#integer> .'
    )
    served = '<urn:a> <urn:b> "Bäume"@de .\n'

    assert content(stored)[0] == (3,)
    assert content(stored)[2] == content(served)[2]


def test_a_seed_is_a_plan_in_which_each_kind_has_its_turn() -> None:
    def first(seed: int) -> dict[str, list[Planned]]:
        return {lane: list(islice(plan(seed, lane), len(kinds))) for lane, (kinds, _, _) in LANES.items()}

    assert first(1) == first(1) != first(2)
    assert all({fault.kind for fault in first(1)[lane]} == set(kinds) for lane, (kinds, _, _) in LANES.items())
