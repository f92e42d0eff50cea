"""After a restore of the database: what the outside has seen meanwhile, and how either is mended.

Whatever is looked at outside is looked at before the rows: all that is made outside is noted before it is made, so what
no row knows then is nobody's, even if a function should be at work.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import uuid4

import httpx

from chalicelib.catalog.store import FENCE
from chalicelib.codes import sentence
from chalicelib.datasets import registry
from chalicelib.db import Database, statements
from chalicelib.engine import Engine
from chalicelib.exports.data_service import RemoteDataService, ServiceAway, ServiceRefused
from chalicelib.exports.errors import StorageAway, StorageRefused
from chalicelib.exports.storage import Store, client
from chalicelib.pipelines import PIPELINES
from chalicelib.pipelines.entries import dataset_of
from chalicelib.settings import Settings

from .remote import Refused

SQL = statements("chalicelib.cli")

VERSION = "http://www.w3.org/ns/dcat#version"
ENTRIES = f"""
SELECT ?graph ?subject ?fence ?version WHERE {{ GRAPH ?graph {{
  ?subject <{FENCE}> ?fence OPTIONAL {{ ?graph <{VERSION}> ?version }}
}} }}
"""
ENTRY = f"SELECT ?s ?p ?o WHERE {{{{ GRAPH <{{graph}}> {{{{ ?s ?p ?o FILTER (?p != <{FENCE}>) }}}} }}}}"
PREFIXES = ("exports/", "uploads/", "sources/")
"""What Leaseway keeps in its bucket; whatever else is there isn't ours."""
_KEY = re.compile(r"exports/[0-9a-f-]{36}/(\d+)/")

Content = tuple[int, frozenset[tuple[str, str, str]]]
"""An entry as every store gives it back: how many triples, and those that lead to an IRI, which none writes otherwise.

Two entries of one dataset differ in them: each IRI of a file or version has the version's number.
"""
NOTHING: Content = (0, frozenset())


@dataclass
class Found:
    """What is outside and fits no row, or lacks what a row knows."""

    files: list[str] = field(default_factory=list)
    """Keys of objects and open uploads that no row knows."""
    graphs: dict[str, str] = field(default_factory=dict)
    """Datasets whose graph isn't what the catalogue should have, and why."""
    lost: list[tuple[str, int]] = field(default_factory=list)
    """Versions that stand, but whose files are gone."""


def refuse_company(database: Database) -> None:
    """Refuse while a job is worked on; a backup's own claims are over a lease after the restore."""
    live = database.one(SQL.find_live_claim)
    if live and live["until"]:
        raise Refused(
            f"A job is worked on, until {live['until']:%H:%M:%S} UTC if it doesn't go on: stop the functions"
            " (docs/operating.md), then run this again."
        )


def lift(settings: Settings, database: Database) -> tuple[int, dict[str, int]]:
    """Lift fences and version numbers above the highest found outside; the next fence, and the numbers lifted."""
    fences, versions = seen_by_the_triple_store(settings)
    fences.append(seen_by_object_storage(settings.bucket))
    fences.append(seen_by_targets(database))
    fences.append(seen_by_the_data_service(settings))
    lifted = {
        dataset: number
        for dataset, number in versions.items()
        if database.one(SQL.lift_version, dataset=dataset, number=number)
    }
    return _engine(settings, database).restored(max(fences)), lifted


def look(settings: Settings, database: Database) -> Found:
    """Compare files and graphs with the rows."""
    objects, uploads = _keys(settings.bucket)
    held = _entries(settings)
    found = Found()
    keys = sorted({key for key in (*objects, *uploads) if key.startswith(PREFIXES)})
    found.files = [row["key"] for row in database.run(SQL.list_unknown_objects, keys=keys)]
    gone = _without_files(settings, database, set(objects))
    found.lost = list(gone)
    found.graphs = dict(_differing(settings, database, held, {name for (name, _), current in gone.items() if current}))
    return found


def remove(settings: Settings, database: Database, found: Found) -> None:
    """Have cleanup remove the files and put the graphs right: they are garbage of the ledger from now on.

    The file of a source is removed at once: whoever registers it again would find it by its content, and lose it to
    cleanup.
    """
    engine, store = _engine(settings, database), Store.of(settings)
    with database.transaction() as tx:
        for key in found.files:
            if not key.startswith("sources/"):
                engine.leave(tx, uuid4(), "s3_object", {"key": key}, timedelta())
        for dataset in found.graphs:
            tx.run(registry.SQL.add_dataset, dataset=dataset)  # its row is the lock
            graph = {"graph": _graph(settings, dataset), "dataset": dataset}
            engine.leave(tx, uuid4(), "graph", graph, timedelta())
    with _storage():
        for key in found.files:
            if key.startswith("sources/"):
                store.abort_uploads(key)
                store.delete(key)


def _engine(settings: Settings, database: Database) -> Engine:
    from chalicelib.engine.sqs import SqsQueues

    return Engine(database, PIPELINES, settings, SqsQueues(settings))


def _graph(settings: Settings, dataset: str) -> str:
    return f"{settings.public_url}/datasets/{dataset}"


# Numbers


def seen_by_the_triple_store(settings: Settings) -> tuple[list[int], dict[str, int]]:
    """Return every fence in the store, and the highest version number that each dataset's graph knows.

    Beside its fence a graph keeps the number that was given last; one that an older release wrote has its entry's.
    """
    fences, versions = [0], dict[str, int]()
    for row in _ask(settings, ENTRIES):
        fences.append(int(row["fence"]["value"]))
        graph = row["graph"]["value"]
        if dataset := dataset_of(graph, settings.public_url):
            given = row["subject"]["value"].removeprefix(f"{graph}/versions/")
            numbers = [given, row["version"]["value"]] if "version" in row else [given]
            highest = max((int(number) for number in numbers if re.fullmatch("[0-9]{1,9}", number)), default=0)
            versions[dataset] = max(versions.get(dataset, 0), highest)
    return fences, {dataset: number for dataset, number in versions.items() if number}


def seen_by_targets(database: Database) -> int:
    """Return the highest fence in the targets of the newest manifest's refreshes."""
    from chalicelib.engine import PermanentFailure
    from chalicelib.pipelines.refresh.looking import highest_fence
    from chalicelib.pipelines.refresh.target import TargetError

    try:
        return highest_fence(database)
    except (PermanentFailure, TargetError) as error:
        why = sentence(error.code, error.details.get("sqlstate"))
        raise Refused(f"The targets of refreshes must answer, for they know fences: {why}") from error


def seen_by_object_storage(bucket: str) -> int:
    """Return the highest fence in the keys of objects and open uploads."""
    objects, uploads = _keys(bucket)
    return max((int(match[1]) for key in (*objects, *uploads) if (match := _KEY.match(key))), default=0)


def seen_by_the_data_service(settings: Settings) -> int:
    """Return the highest fence that a remote one was asked with; the built-in one's are the database's own."""
    if settings.data_service_url is None:
        return 0
    token = settings.data_service_token
    service = RemoteDataService(settings.data_service_url, token.get_secret_value() if token else None, timeout=60)
    try:
        return service.newest_fence()
    except (ServiceAway, ServiceRefused) as error:
        raise Refused(f"The data service must answer, for it knows fences: {error.details['status']}.") from error


# Files and graphs


def _keys(bucket: str) -> tuple[list[str], list[str]]:
    with _storage():
        return Store(bucket, client).keys()


@contextmanager
def _storage() -> Iterator[None]:
    try:
        yield
    except (StorageAway, StorageRefused) as error:
        raise Refused("Object storage must answer, for it knows fences and files.") from error


def _without_files(settings: Settings, database: Database, there: set[str]) -> dict[tuple[str, int], bool]:
    """The versions that stand without a file of theirs, and whether each is the current one."""
    store = Store.of(settings)
    rows = [row for row in database.run(SQL.list_standing_files) if row["key"] not in there]
    with _storage():
        gone = [row for row in rows if store.head(row["key"]) is None]  # one may have been published since
    return {(row["dataset_id"], row["number"]): row["is_current"] for row in gone}


def _entries(settings: Settings) -> dict[str, Content]:
    """What the graph of each dataset holds."""
    graphs = {row["graph"]["value"] for row in _ask(settings, ENTRIES)}
    found = {}
    for graph in graphs:
        if dataset := dataset_of(graph, settings.public_url):
            rows = _ask(settings, ENTRY.format(graph=graph))
            found[dataset] = (
                len(rows),
                frozenset(
                    (row["s"]["value"], row["p"]["value"], row["o"]["value"])
                    for row in rows
                    if row["o"]["type"] == "uri"
                ),
            )
    return found


def _differing(
    settings: Settings, database: Database, held: dict[str, Content], lost: set[str]
) -> Iterator[tuple[str, str]]:
    """The datasets whose graph isn't their current version's entry, and what it is."""
    current = {row["dataset_id"]: row for row in registry.current_entries(database)}
    mended = {row["graph"] for row in database.run(SQL.list_graphs_to_mend)}
    for dataset in sorted({*held, *current}):
        # Where the current version has lost its files its withdrawal writes the graph: an entry would lead to nothing.
        if dataset in lost or _graph(settings, dataset) in mended:
            continue
        wanted = current.get(dataset)
        if held.get(dataset, NOTHING) != (_content(wanted["documents"]["nt"]) if wanted else NOTHING):
            yield dataset, f"version {wanted['number']} is the current one" if wanted else "there is no version"


def _content(document: str) -> Content:
    from rdflib import Graph, URIRef

    triples = Graph().parse(data=document, format="nt")
    return len(triples), frozenset((str(s), str(p), str(o)) for s, p, o in triples if isinstance(o, URIRef))


def _ask(settings: Settings, query: str) -> list[dict[str, dict[str, str]]]:
    auth = settings.triple_store_auth
    name, _, password = auth.get_secret_value().partition(":") if auth else ("", "", "")
    try:
        answer = httpx.post(
            settings.triple_store_query_url or "",
            content=query,
            headers={"Content-Type": "application/sparql-query", "Accept": "application/sparql-results+json"},
            auth=(name, password) if auth else None,
            timeout=60,
        ).raise_for_status()
    except httpx.HTTPError as error:
        raise Refused(f"The triple store must answer, for it knows fences: {type(error).__name__}.") from error
    rows: list[dict[str, dict[str, str]]] = answer.json()["results"]["bindings"]
    return rows
