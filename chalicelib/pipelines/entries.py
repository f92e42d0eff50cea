"""A dataset's entry in the triple store: replaced with a claim as its fence, and read back (invariant 13)."""

from functools import cache
from typing import Any

from chalicelib.catalog.store import GraphStore, StoreAway, StoreRefused
from chalicelib.datasets import registry
from chalicelib.db import Sql
from chalicelib.engine import Leased, Outage, PermanentFailure, TransientFailure
from chalicelib.pipelines import context


@cache
def graph_store() -> GraphStore:
    """The triple store of this installation; one connection pool a process."""
    settings = context().settings
    auth = settings.triple_store_auth
    return GraphStore(
        settings.triple_store_update_url or "",
        settings.triple_store_query_url or "",
        auth=auth.get_secret_value() if auth else None,
        timeout=settings.store_timeout,
    )


def dataset_of(graph: str, public_url: str) -> str | None:
    """The dataset whose entry stands in the graph of that name; None for other graphs: anybody may write some."""
    dataset = graph.removeprefix(f"{public_url}/datasets/")
    return dataset if registry.DATASET.fullmatch(dataset) else None


def replace_entry(job: Leased[Any], tx: Sql, graph: str, ntriples: bytes, triples: int, newest: int) -> bool:
    """Replace the entry (by nothing: empty it) in the transaction that holds dataset and job, and read it back.

    ``newest`` is the highest version number that is given once the transaction commits: the graph keeps it.
    False where a newer fence stands there, for cleanup has put the entry back: come back with one newer still.
    """
    store, written = graph_store(), False
    try:
        store.replace(graph, ntriples, job.claim_id, newest)
        written = True
        job.hold(tx)  # each request alone is shorter than the transaction may be idle, both together aren't
        held = store.held(graph)
    except StoreAway as error:
        # What wasn't answered may still be at work, and two writes at once leave both entries: the next comes after it.
        pause = {} if written else {"seconds": context().settings.store_timeout}
        raise Outage("triple_store_unreachable", host=error.host, status=error.status, **pause) from error
    except StoreRefused as error:
        raise TransientFailure("triple_store_refused", host=error.host, status=error.status) from error
    if held.fence is not None and held.fence > job.claim_id:
        if held.fence > context().engine.fence(tx):
            raise PermanentFailure("fence_regressed", fence=job.claim_id, found=held.fence)
        return False
    if held != (job.claim_id, triples):
        raise TransientFailure("triple_store_mismatch", fence=job.claim_id)
    return True
