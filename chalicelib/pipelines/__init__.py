"""The pipelines: which there are, what removes what they wrote, and the context their steps run in.

Light to import: the API needs it at every cold start.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from chalicelib import codes
from chalicelib.datasets import registry
from chalicelib.datasets.store import drop_store
from chalicelib.db import Database, Sql, connect
from chalicelib.engine import Engine, Failure, Idempotency, Job, Refusal, SubjectBusy
from chalicelib.engine.sqs import SqsQueues
from chalicelib.settings import Settings, settings

from . import export, load, publication, refresh, withdrawal

PIPELINES = {
    pipeline.name: pipeline
    for pipeline in (publication.publication, withdrawal.withdrawal, export.export, load.load, refresh.refresh)
}

REMOVERS = {
    "s3_object": "chalicelib.pipelines.export.removal:remove_object",
    "staging": "chalicelib.pipelines.export.removal:drop_staging",
    "export": "chalicelib.pipelines.publication.removal:remove_export",
    "graph": "chalicelib.pipelines.publication.removal:restore_graph",
    "upload": "chalicelib.pipelines.load.removal:remove_upload",
    "refresh_staging": "chalicelib.pipelines.refresh.removal:remove_staging",
}
"""What cleanup calls for each kind of ledger row."""


@dataclass(frozen=True)
class Context:
    """What a function process has: its settings, its connection and the engine over both."""

    settings: Settings
    db: Database
    engine: Engine


@cache
def context() -> Context:
    """The context of this process, made once."""
    db = connect(settings())
    return Context(settings(), db, Engine(db, PIPELINES, settings(), SqsQueues(settings())))


def publish(
    engine: Engine, dataset: str, *, accept_drop: bool = False, key: Idempotency | None = None
) -> Job | Failure:
    """Accept a publication of the dataset as it is defined now, and try to wake a worker; SubjectBusy, Refusal."""
    wanted = {"dataset": dataset, "accept_drop": accept_drop}
    return engine.once(key, lambda tx: engine.accept("publication", publication.pin(tx, wanted), tx=tx).job)


def start_refresh(
    engine: Engine, *, key: Idempotency | None = None, also: Callable[[Sql, Job], None] = lambda tx, job: None
) -> Job | Failure:
    """Accept a refresh as the newest manifest says, or find the active one, and try to wake a worker; Refusal.

    It is accepted together with what `also` writes in the transaction that it is given.
    """

    def accept(tx: Sql) -> Job:
        job = engine.accept("refresh", refresh.pin(tx, {}), tx=tx).job
        also(tx, job)
        return job

    return engine.once(key, accept)


def withdraw(engine: Engine, dataset: str, version: int, *, key: Idempotency | None = None) -> Job | Failure:
    """Accept a withdrawal of a version, and try to wake a worker; SubjectBusy, Refusal.

    The same again gets the same job: the active one, and the one that did it for ever after.
    """
    subject = withdrawal.WithdrawalSubject(dataset=dataset, version=version)

    def accept(tx: Sql) -> Job:
        known = registry.version(tx, dataset, version)
        if known is None:
            raise Refusal("not_found", "version", f"Dataset '{dataset}' has no version {version}.")
        if known["withdrawn_by"] and (job := engine.job(known["withdrawn_by"])):
            return job
        try:
            return engine.accept("withdrawal", subject, tx=tx).job
        except SubjectBusy as busy:
            job = engine.job(busy.active)
            if job is None or job.subject != subject.model_dump():
                raise
            return job

    return engine.once(key, accept)


def delete_dataset(engine: Engine, dataset: str) -> None:
    """Delete a dataset whose versions are all withdrawn, its schedule and its store; its id is never given again.

    Raises Refusal: not_found, gone, has_versions; SubjectBusy.
    """
    key = f"dataset:{dataset}"
    with engine.db.transaction() as tx:  # the engine's statements run in it too: it is its connection
        engine.delete_schedule(key)  # first, for catch-up locks in this order too
        known = registry.take_dataset(tx, dataset)
        if known is None:
            raise Refusal("not_found", "dataset", "There is no such dataset.")
        if known["deleted_at"]:
            raise Refusal("gone", "dataset", f"Dataset '{dataset}' was deleted.")
        if active := engine.find(key):
            raise SubjectBusy(active.id, active.pipeline)
        if known["current_version"] is not None:
            raise Refusal("has_versions", "dataset", codes.PROBLEMS["has_versions"].remedy)
        registry.delete_dataset(tx, dataset)
        drop_store(tx, dataset)
