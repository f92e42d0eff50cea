"""The history of every subject, and what must hold of it. It knows tables, files and graphs, not the product's code."""

import csv
import hashlib
import io
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any

import httpx
from rdflib import Graph

from .faults import Fault

Row = dict[str, Any]

FENCE = "urn:leaseway:fence"
VERSION = "http://www.w3.org/ns/dcat#version"
INTEGERS = re.compile(r"#nonNegativeInteger>")
"""What Oxigraph keeps as an integer, and no more."""

LOST = "worker_lost"
"""What stands for a code where a lease ran out."""

ENDS_CLAIMS = {"database restarted", "database crashed", "deployed"}
"""What costs whoever has a claim meanwhile his lease; all else that does is aimed at one, or names it."""

FELT = 2
"""Seconds for which whoever asks may still feel a fault."""

COSTS_ANSWERS = ("killed elsewhere", "connections ended", "idle connections", "database")
"""What may cost a caller an answer, where it hit the API, or everybody."""

STOCK = "store.stock"

RESTORES = {"export"}
"""Pipelines whose progress gives attempts back."""

STARTS_OVER = {"accepted", "retried", "worker_lost"}


@dataclass(frozen=True)
class Asked:
    """A request that was answered 202."""

    kind: str
    dataset: str
    number: int = 0


@dataclass(frozen=True)
class Answer:
    """What a caller got who should have got a 202, and when: a status, or none."""

    path: str
    began: float
    ended: float
    what: str


@dataclass(frozen=True)
class Seen:
    """A graph at an instant: its fences, how many versions one thing has in it, its other triples' hash and number."""

    graph: str
    fences: tuple[int, ...]
    versions: int
    content: str
    size: int = 0


@dataclass(frozen=True)
class Look:
    """A table at an instant, or a moment later: which generation its rows are of."""

    table: str
    at: float
    generation: int


@dataclass(frozen=True)
class Taken:
    """A claim that cost an attempt: from when to when, and the code that stands there."""

    job: str
    claim: int
    began: float
    ended: float
    code: str


@dataclass
class History:
    """All that there is once everything has ended, and what was seen on the way."""

    public_url: str
    accepted: dict[str, Asked]
    jobs: dict[str, Row] = field(default_factory=dict)
    failures: dict[str, Row] = field(default_factory=dict)
    events: list[Row] = field(default_factory=list)
    ledger: list[Row] = field(default_factory=list)
    datasets: dict[str, Row] = field(default_factory=dict)
    versions: list[Row] = field(default_factory=list)
    """``content`` and ``size`` beside the columns: hash and number of the stored document's triples."""
    loads: dict[str, Row] = field(default_factory=dict)
    counts: dict[tuple[str, int], int] = field(default_factory=dict)
    """Dataset and number of a load to how many of its rows the store has."""
    stock: set[int] = field(default_factory=set)
    """The numbers of the loads that the rows of the stock are of."""
    audits: list[Row] = field(default_factory=list)
    contracts: set[str] = field(default_factory=set)
    targets: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Table to its rows and their generations."""
    graphs: dict[str, Seen] = field(default_factory=dict)
    objects: dict[str, str] = field(default_factory=dict)
    """Key to SHA-256."""
    generations: dict[str, set[str]] = field(default_factory=dict)
    """Key of a CSV to the generations in it."""
    left: list[str] = field(default_factory=list)
    """Open uploads, staging tables, exports: whatever nobody needs any more."""
    unexpected: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    """At the targets and the stock, in their order."""
    turns: list[tuple[float, int]] = field(default_factory=list)
    """By when the source had which generation, or a later one."""
    faults: list[Fault] = field(default_factory=list)
    rows_of_a_load: int = 3
    records: int = 200

    @cached_property
    def by_job(self) -> dict[str, list[Row]]:
        """The events of each job."""
        found: dict[str, list[Row]] = defaultdict(list)
        for event in self.events:
            found[event["job_id"]].append(event)
        return found

    @cached_property
    def aimed_at(self) -> set[int]:
        """The claims whose workers were killed or put to sleep, or lost their session."""
        return {fault.claim for fault in self.faults if fault.claim is not None}

    def of_kind(self, kind: str) -> dict[str, Row]:
        return {id: job for id, job in self.jobs.items() if job["pipeline"] == kind}

    def subjects(self) -> int:
        """How many histories were read: jobs, datasets and targets."""
        return len(self.jobs) + len(self.failures) + len(self.datasets) + len(self.targets)


Check = Callable[[History], Iterator[str]]
CHECKS: list[Check] = []


def check(found: Check) -> Check:
    CHECKS.append(found)
    return found


def violations(history: History) -> list[str]:
    """Everything that doesn't hold, by the name of its check."""
    return [f"{check.__name__}: {text}" for check in CHECKS for text in check(history)]


# ---- every job ends, once


@check
def lost_jobs(history: History) -> Iterator[str]:
    """Every 202 ends; everything is in exactly one place, and its history has one beginning and one end."""
    for id, asked in history.accepted.items():
        if id not in history.jobs and id not in history.failures:
            yield f"a {asked.kind} that was accepted is gone: {id}"
    for id, job in history.jobs.items():
        if job["finished_at"] is None:
            yield f"a {job['pipeline']} has not ended: {id}, {job['state']}"
        if id in history.failures:
            yield f"a job is in two places: {id}"
    for id in history.jobs.keys() | history.failures.keys() | history.by_job.keys():
        kinds = [event["kind"] for event in _of(history, id)]
        ends = [kind for kind in kinds if kind in ("finished", "failed")]
        if kinds.count("accepted") != 1 or kinds[0] != "accepted":
            yield f"a job without its one acceptance: {id}, {kinds}"
        elif len(ends) > 1 or (ends and kinds[-1] != ends[0]):
            yield f"something happened to a job after its end: {id}, {kinds}"
        elif ends and (ends[0] == "failed") != (id in history.failures):
            yield f"a job's end and its place differ: {id}, {ends[0]}"


@check
def doubled_jobs(history: History) -> Iterator[str]:
    """A job is one that a caller was told of, the part of one, or the one that another's end has started."""
    followed: Counter[str] = Counter()
    for id, job in {**history.jobs, **history.failures}.items():
        asked = history.accepted.get(id)
        follows = next((e["details"].get("follows") for e in _of(history, id) if e["kind"] == "accepted"), None)
        if asked:
            if (asked.kind, asked.dataset) != (job["pipeline"], job["subject"].get("dataset", "")):
                yield f"a {asked.kind} of {asked.dataset} was asked for, and became {job}"
        elif job["pipeline"] == "export":
            if job["subject"].get("key") not in history.by_job:
                yield f"an export of no publication: {id}"
        elif follows not in history.by_job:
            yield f"a {job['pipeline']} that nobody asked for: {id}"
        else:
            followed[follows] += 1
            if followed[follows] > 1:
                yield f"two jobs follow one: {follows}"


@check
def two_owners(history: History) -> Iterator[str]:
    """A fence belongs to one claim and only grows; nobody but the last owner left an event."""
    owner: dict[str, int] = {}
    given: set[int] = set()
    for event in history.events:
        id, claim = event["job_id"], event["claim_id"]
        if event["kind"] == "claimed":
            if claim in given or claim <= owner.get(id, 0):
                yield f"a fence that isn't new: {event}"
            given.add(claim)
            owner[id] = claim
        elif claim is not None and claim != owner.get(id):
            yield f"a stale owner left an event: {event}"
    for id, job in history.jobs.items():
        if job["finished_at"] and job["claim_id"] != owner.get(id):
            yield f"a job was finished by somebody who didn't own it: {id}"


@check
def miscounted_attempts(history: History) -> Iterator[str]:
    spent: Counter[str] = Counter()
    requested: dict[str, bool] = {}
    for event in history.events:
        id = event["job_id"]
        if event["kind"] == "claimed":
            spent[id] += requested.get(id, True)
            requested[id] = False
            pipeline = (history.jobs.get(id) or history.failures.get(id) or {}).get("pipeline")
            least = 1 if pipeline in RESTORES else spent[id]
            if not least <= event["attempts"] <= min(3, spent[id]):
                yield f"attempts that aren't those that were made: {event}, {spent[id]}"
        elif event["kind"] in STARTS_OVER:
            requested[id] = True


# ---- every effect, once


@check
def doubled_versions(history: History) -> Iterator[str]:
    """Numbers without a gap, each by the publication that won it, with its own fence."""
    by_job = Counter(version["job_id"] for version in history.versions)
    published = history.of_kind("publication")
    for id, job in published.items():
        if job["finished_at"] and by_job[id] != 1:
            yield f"a publication made {by_job[id]} versions: {id}"
    for dataset, row in history.datasets.items():
        made = sorted((v for v in history.versions if v["dataset_id"] == dataset), key=lambda v: v["number"])
        numbers = [version["number"] for version in made]
        if numbers != list(range(1, len(numbers) + 1)):
            yield f"{dataset}'s versions are numbered {numbers}"
        if (row["last_version"], row["current_version"] or 0) != (len(made), len(made)):
            yield f"{dataset} says of its versions {row}, but there are {len(made)}"
        fences = [version["fence"] for version in made]
        if fences != sorted(set(fences)):
            yield f"{dataset}'s versions were written under {fences}"
        for version in made:
            by = published.get(version["job_id"])
            if not by or (by["version"], by["claim_id"]) != (version["number"], version["fence"]):
                yield f"version {version['number']} of {dataset} isn't its publication's: {by}"


@check
def doubled_loads(history: History) -> Iterator[str]:
    """Each load's rows are there once, those of a failed one never, and the order is that of acceptance."""
    loads = history.of_kind("load")
    for id, job in loads.items():
        if job["finished_at"] and id not in history.loads:
            yield f"a load that is done has no record: {id}"
    for id in history.loads:
        if id not in loads or not loads[id]["finished_at"]:
            yield f"a record of a load that isn't done: {id}"
    counted = {
        (asked.dataset, asked.number): id
        for id, asked in history.accepted.items()
        if asked.kind == "load" and asked.dataset != "stock"
    }
    for load, id in counted.items():
        there, wanted = history.counts.get(load, 0), history.rows_of_a_load if id in history.loads else 0
        if there != wanted:
            yield f"load {load} has {there} rows in the store, not {wanted}: {id}"
        if id in history.loads and history.loads[id]["inserted"] != history.rows_of_a_load:
            yield f"load {load} was written twice: {history.loads[id]}"
    for load in history.counts.keys() - counted.keys():
        yield f"rows of a load that nobody asked for: {load}"
    for dataset in {job["subject"]["dataset"] for job in loads.values()}:
        line = sorted(
            (j for j in loads.values() if j["subject"]["dataset"] == dataset), key=lambda j: j["order_number"]
        )
        ends = [job["finished_at"] for job in line if job["finished_at"]]
        if ends != sorted(ends):
            yield f"the loads of {dataset} were not done in their order"
        numbers = [history.accepted[job["id"]].number for job in line if job["id"] in history.accepted]
        if numbers != sorted(numbers):
            yield f"the loads of {dataset} stand in line as {numbers}, not as they were asked for"
        if dataset == "stock" and line:
            [last] = [job["id"] for job in line[-1:]]
            wanted_number = history.accepted[last].number if last in history.accepted else None
            if history.stock != {wanted_number}:
                yield f"the stock is of the loads {history.stock}, the last one was {wanted_number}"
    yield from _went_back(look for look in history.looks if look.table == STOCK)


@check
def doubled_refreshes(history: History) -> Iterator[str]:
    """One audit a contract; and each target is one generation of its source, whole."""
    refreshes = history.of_kind("refresh")
    told: dict[str, list[Row]] = defaultdict(list)
    lost = {event["claim_id"]: event["at"] for event in history.events if event["kind"] == "worker_lost"}
    for audit in history.audits:
        told[audit["job_id"]].append(audit)
        if audit["fence"] in lost and audit["finished_at"] > lost[audit["fence"]]:
            yield f"an audit under a fence that was lost before: {audit}"
        if audit["fence"] not in {event["claim_id"] for event in _of(history, audit["job_id"])}:
            yield f"an audit under a fence that its job never had: {audit}"
    for id, job in refreshes.items():
        names = [audit["contract"] for audit in told[id]]
        if job["finished_at"] and (set(names) != history.contracts or len(names) != len(history.contracts)):
            yield f"a refresh has the audits {names}: {id}"
        if job["finished_at"] and any(audit["outcome"] != "refreshed" for audit in told[id]):
            yield f"a refresh that succeeded has a contract that didn't: {id}"
    for id, audits in told.items():
        if len({audit["contract"] for audit in audits}) != len(audits):
            yield f"a contract was audited twice: {id}"
    for table, found in history.targets.items():
        if refreshes and found != (history.records, 1):
            yield f"{table} has {found[0]} rows of {found[1]} generations"
    targets = [look for look in history.looks if look.table != STOCK]
    yield from _went_back(targets)
    # A refresh reads one snapshot of its source, once it has begun; and it is there before its audit.
    for look in targets:
        of = [a for a in history.audits if a["table"] == look.table and a["outcome"] == "refreshed"]
        begun = max((a["started_at"].timestamp() for a in of if a["finished_at"].timestamp() < look.at), default=0.0)
        least = max((generation for at, generation in history.turns if at < begun), default=0)
        if look.generation < least:
            yield f"a target that is older than its last refresh, which read {least} or later: {look}"


def _went_back(looks: Iterable[Look]) -> Iterator[str]:
    newest: dict[str, int] = {}
    for look in looks:
        if look.generation < newest.get(look.table, 0):
            yield f"a table that went back from {newest[look.table]}: {look}"
        newest[look.table] = look.generation


# ---- what readers see


@check
def mixed_graphs(history: History) -> Iterator[str]:
    """A graph is one document, at each instant; in the end the current version's, and there is no other graph."""
    documents = {(v["dataset_id"], v["fence"]): v["content"] for v in history.versions}
    # The definitions are alike, so are the documents: a first version's, and a later one's.
    whole = {(0, 0)} | {(1, version["size"]) for version in history.versions}
    by_fence: dict[tuple[str, int], str] = {}
    newest: dict[str, int] = {}
    for seen in [*history.seen, *history.graphs.values()]:
        dataset, fence = seen.graph.rpartition("/")[2], max(seen.fences, default=0)
        if fence < newest.get(seen.graph, 0):
            yield f"a graph that went back, after fence {newest[seen.graph]}: {seen}"
        newest[seen.graph] = fence
        if not seen.fences:
            if seen.versions or seen.size:
                yield f"a document without a fence: {seen}"
            continue
        if len(seen.fences) != 1 or seen.versions > 1:
            yield f"a graph of two documents: {seen}"
        elif (dataset, fence) not in documents and (seen.versions, seen.size) not in whole:
            yield f"neither a whole document nor an emptied graph: {seen}"
        elif by_fence.setdefault((seen.graph, fence), seen.content) != seen.content:
            yield f"one fence has written two documents: {seen}"
        elif documents.get((dataset, fence), seen.content) != seen.content:
            yield f"a graph that isn't its version's document: {seen}"
    current = {
        v["dataset_id"]: v
        for v in history.versions
        if v["number"] == history.datasets[v["dataset_id"]]["current_version"]
    }
    for dataset, version in current.items():
        graph = history.graphs.get(f"{history.public_url}/datasets/{dataset}")
        if graph is None or graph.content != version["content"]:
            yield f"{dataset}'s graph isn't its current version's document: {graph}"
    for name in history.graphs:
        if name.rpartition("/")[2] not in current and history.graphs[name].versions:
            yield f"a graph that is nobody's: {name}"


@check
def wrong_files(history: History) -> Iterator[str]:
    """In the bucket are the files of the versions, as they were written, and nothing else."""
    wanted = {file["key"]: file["sha256"] for version in history.versions for file in version["files"]}
    for key, sha256 in wanted.items():
        if history.objects.get(key) != sha256:
            yield f"a version's file isn't what it was: {key}"
    for key in history.objects.keys() - wanted.keys():
        yield f"a file that no version has: {key}"
    for row in history.ledger:
        if row["status"] != "kept":
            yield f"the ledger still has {row}"
        elif row["kind"] == "s3_object" and row["locator"]["key"] not in wanted:
            yield f"kept, but no version's: {row}"
    for thing in history.left:
        yield f"left: {thing}"
    for key, generations in history.generations.items():
        if len(generations) != 1:
            yield f"a file of {len(generations)} generations: {key}"


@check
def wrong_answers(history: History) -> Iterator[str]:
    """What nobody should get; and what nobody should get but under a fault that explains it."""
    yield from history.unexpected
    faults = [f for f in history.faults if f.kind.startswith(COSTS_ANSWERS) and f.about in ("", "APIHandler")]
    for answer in history.answers:
        if not any(f.began <= answer.ended and answer.began <= f.ended + FELT for f in faults):
            yield f"no fault explains it: {answer}"


# ---- who failed, failed rightly


@check
def spent_attempts(history: History) -> Iterator[str]:
    """An attempt ends without a result where its worker was hit; what else is away or silent is waited for."""
    for taken in unexplained(history):
        yield f"no fault explains the end of an attempt: {taken}"


@check
def failed_by_an_outage(history: History) -> Iterator[str]:
    """A job fails once three attempts were taken from it, never because something was away for less than its budget."""
    for id, failure in history.failures.items():
        if failure["code"] == "cancelled":
            if not _needless(history, id, failure):
                yield f"a {failure['pipeline']} that nobody has cancelled: {id}"
            continue
        if _failed_with_its_export(history, id, failure):
            continue
        taken = list(_taken(history, id))
        if failure["attempts"] < 3 or len(taken) < 3:
            yield (
                f"a {failure['pipeline']} failed with {failure['code']} {failure['details']} in attempt"
                f" {failure['attempts']}, {len(taken)} of them taken: {id}"
            )


def _needless(history: History, id: str, failure: Row) -> bool:
    """Cleanup cancels the export of a publication that has ended: another data service has made its files."""
    if failure["pipeline"] != "export":
        return False
    ends = [_at(e) for e in _of(history, failure["subject"]["key"]) if e["kind"] in ("finished", "failed")]
    return bool(ends) and ends[0] <= _at(_of(history, id)[-1])


def _failed_with_its_export(history: History, id: str, failure: Row) -> bool:
    """The export is a job of its own, and is judged by itself."""
    if failure["pipeline"] != "publication":
        return False
    exports = [f for f in history.failures.values() if f["pipeline"] == "export" and f["subject"]["key"] == id]
    return any(export["code"] == failure["code"] for export in exports)


def lost_claims(history: History) -> list[Taken]:
    """Claims whose lease ran out."""
    return [taken for taken in taken_claims(history) if taken.code == LOST]


def unexplained(history: History) -> list[Taken]:
    """Claims that cost an attempt though nothing hit them; of an ended session that nobody knows, one is explained."""
    left = [taken for taken in taken_claims(history) if not _explained(history, taken)]
    for fault in history.faults:
        if (fault.claim, fault.about) == (None, "Worker"):
            hit = (n for n, taken in enumerate(left) if taken.code == LOST and _session_of(fault, taken))
            if (n := next(hit, None)) is not None:
                del left[n]
    return left


def taken_claims(history: History) -> list[Taken]:
    """Claims that cost an attempt."""
    return [taken for job in history.by_job for taken in _taken(history, job)]


def _taken(history: History, id: str) -> Iterator[Taken]:
    """The claims that cost this job an attempt."""
    claimed: dict[int, float] = {}
    for event in _of(history, id):
        claim, code = event["claim_id"], event["details"].get("code", LOST)
        if event["kind"] == "claimed":
            claimed[claim] = _at(event)
        elif event["kind"] in ("worker_lost", "retried", "failed") and claim in claimed:
            failure = history.failures.get(id) if event["kind"] == "failed" else None
            if code == "cancelled" or (failure and _failed_with_its_export(history, id, failure)):
                continue
            code = LOST if code == "attempts_exhausted" else code
            yield Taken(id, claim, claimed[claim], _at(event), code)


def _of(history: History, id: str) -> list[Row]:
    return history.by_job.get(id, [])


def _explained(history: History, taken: Taken) -> bool:
    """Whether a fault has taken this claim's lease; nothing else ends an attempt."""
    return taken.code == LOST and (
        taken.claim in history.aimed_at or any(f.kind in ENDS_CLAIMS and _during(f, taken) for f in history.faults)
    )


def _session_of(fault: Fault, taken: Taken) -> bool:
    """Whether this may have been its session: that of a claim seen there, or made while somebody looked."""
    made = fault.began - 1 <= taken.began <= fault.ended  # its log tells of a claim a moment after it was made
    return "connections ended" in fault.kind and (made or taken.claim in fault.maybe)


def _during(fault: Fault, taken: Taken) -> bool:
    return fault.began <= taken.ended and fault.ended >= taken.began


def _at(event: Row) -> float:
    at: datetime = event["at"]
    return at.timestamp()


# ---- gathering


def triples(http: httpx.Client, oxigraph: str, graph: str) -> tuple[tuple[int, ...], int, str, int]:
    """A graph of the triple store: its fences, how many versions one thing has, hash and number of everything else."""
    answer = http.post(
        f"{oxigraph}/query",
        content=f"CONSTRUCT {{ ?s ?p ?o }} WHERE {{ GRAPH <{graph}> {{ ?s ?p ?o }} }}",
        headers={"Content-Type": "application/sparql-query", "Accept": "application/n-triples"},
    )
    return content(answer.raise_for_status().text)


@lru_cache(maxsize=100)
def content(ntriples: str) -> tuple[tuple[int, ...], int, str, int]:
    """The same of a document."""
    ntriples = INTEGERS.sub("#integer>", ntriples)
    found = [tuple(term.n3() for term in triple) for triple in Graph().parse(data=ntriples, format="nt")]
    fences = tuple(sorted(int(o.split('"')[1]) for s, p, o in found if p == f"<{FENCE}>" and "/versions/" not in s))
    rest = sorted(" ".join(triple) for triple in found if triple[1] != f"<{FENCE}>")
    versions = max(Counter(s for s, p, _ in found if p == f"<{VERSION}>").values(), default=0)
    return fences, versions, hashlib.sha256("\n".join(rest).encode()).hexdigest(), len(rest)


def generations(body: bytes) -> set[str] | None:
    """The generations in a CSV of ours; None where it is of another data service."""
    rows = list(csv.reader(io.StringIO(body.decode())))
    return {row[1] for row in rows[1:]} if rows and rows[0] == ["id", "generation"] else None
