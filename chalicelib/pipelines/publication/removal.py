"""What removes the traces of a publication that became no version; cleanup calls it, again if need be."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from chalicelib import telemetry
from chalicelib.catalog.store import StoreAway, StoreRefused
from chalicelib.datasets import registry
from chalicelib.db import DatabaseAway
from chalicelib.engine import LedgerRow, Outage
from chalicelib.exports.data_service import RemoteDataService, ServiceAway, ServiceRefused
from chalicelib.pipelines import context
from chalicelib.pipelines.entries import dataset_of, graph_store
from chalicelib.pipelines.export.service import DataService, data_service


class StillRunning(Exception):
    """The export is being told to stop; cleanup comes again."""


class Mismatch(Exception):
    """The triple store holds something else than was written; cleanup comes again, with a newer fence."""


class AnotherService(Exception):
    """The export is another data service's than the settings name; cleanup comes again, until they name that one."""


def remove_export(row: LedgerRow) -> None:
    """Ask the data service that made it to delete the export."""
    at, key = context(), UUID(row.locator["key"])
    service: DataService | RemoteDataService = DataService(at.db, at.engine)
    if "service" in row.locator:
        service = data_service(at)
        if not isinstance(service, RemoteDataService) or service.url != row.locator["service"]:
            raise AnotherService  # our token is for nobody else
    try:
        if not service.delete(key):
            raise StillRunning
    except ServiceAway as error:
        raise Outage("data_service_unreachable", **error.details) from error
    except ServiceRefused as error:
        raise Outage("data_service_refused", **error.details) from error


def restore_graph(row: LedgerRow) -> None:
    """Write the current version's entry again under a new fence, or empty the graph where there is none."""
    _write_again(row.locator["dataset"], row.locator["graph"])


def mend_mixed_graphs() -> dict[str, int]:
    """Write those entries again of which two stand in one graph; how many, and how many couldn't be. Raises Outage.

    A write that the network delivers late, in the milliseconds of a newer one, is kept beside it by some stores, and
    isn't seen by the newer one's reading back where it came first. The store is asked, for no row knows of it.
    """
    at, store, counts = context(), graph_store(), {"mended_graphs": 0, "unmended_graphs": 0}
    with _outages():
        graphs = store.mixed()
    for graph in graphs:
        dataset = dataset_of(graph, at.settings.public_url)
        try:
            if dataset and registry.definition(at.db, dataset):
                _write_again(dataset, graph)
                counts["mended_graphs"] += 1
        except DatabaseAway:
            raise
        except Exception as error:  # whatever is in this one's way, the others are mended meanwhile
            if isinstance(error, Outage) and error.code == "triple_store_unreachable":
                raise  # for the others it is away as well
            telemetry.failure("mending_failed", error, dataset=dataset)
            counts["unmended_graphs"] += 1
    return counts


def _write_again(dataset: str, graph: str) -> None:
    """Under the dataset's lock, so that no publication is between its replace and its commit."""
    # Committed before it is written out there: a server that crashes gives a fence of an open transaction once more.
    fence = context().engine.fence(context().db)
    with context().db.transaction() as tx:
        locked = registry.lock_dataset(tx, dataset)
        store, content, count = graph_store(), b"", 0
        if locked["current_version"] is not None:
            version = registry.version(tx, dataset, locked["current_version"])
            assert version is not None
            content, count = version["documents"]["nt"].encode("ascii"), version["triples"]
        with _outages():
            store.replace(graph, content, fence, locked["last_version"])
            registry.lock_dataset(tx, dataset)  # not idle for longer than one request
            held = store.held(graph)
        # A newer one's is another cleanup's, of the same; unless nobody here has it, for the database is an older one.
        newer = held.fence is not None and fence < held.fence < context().engine.fence(tx)
        if held.triples != count or not (newer or held.fence == fence):
            raise Mismatch


@contextmanager
def _outages() -> Iterator[None]:
    try:
        yield
    except StoreAway as error:
        raise Outage("triple_store_unreachable", host=error.host, status=error.status) from error
    except StoreRefused as error:
        raise Outage("triple_store_refused", host=error.host, status=error.status) from error
