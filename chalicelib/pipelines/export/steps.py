"""The one step of an export."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.datasets.store import store_relation
from chalicelib.db import Row
from chalicelib.engine import Advance, Leased, Outage, PermanentFailure, TransientFailure, Wait
from chalicelib.exports.address import BadAddress, secured
from chalicelib.exports.errors import SourceError, StorageAway, StorageMismatch, StorageRefused
from chalicelib.exports.formats import Column
from chalicelib.exports.relation import Relation, export
from chalicelib.exports.storage import Store, Upload
from chalicelib.pipelines import context

from . import ExportSubject
from .slots import slot
from .specs import specs
from .staging import STATEMENT_TIMEOUT, staged

OUTAGES = {"source_unreachable", "source_conflict"}
"""What passes by itself: the job waits and spends no attempt."""


@cache
def storage() -> Store:
    """Object storage of this installation; one client a process."""
    return Store.of(context().settings)


def export_records(job: Leased[ExportSubject]) -> Advance | Wait:
    """Export the source as the definition says: a file by way of a table, a store as it is, else with a slot."""
    source, definition = _pinned(job.subject)
    columns = [Column(column.name, column.type, column.source_name or column.name) for column in definition.columns]
    if source["file"]:
        at = context()
        with failing(), staged(job, at.db, at.settings.dsn, storage(), source, columns) as relation:
            published = {column.source for column in columns}
            others = [column["name"] for column in source["file"]["columns"] if column["name"] not in published]
            exported = _export(job, relation, definition, others)
            if exported.result["records"] != source["file"]["records"]:
                raise SourceError("source_unreachable", relation=source["name"])
            return exported
    if source["store"]:
        relation = Relation(
            connection_dsn=context().settings.dsn,
            relation=store_relation(source["store"]),
            query=None,
            columns=columns,
            statement_timeout=STATEMENT_TIMEOUT,
            name=source["name"],
        )
        with failing():
            return _export(job, relation, definition)
    connection = registry.connection(context().db, source["connection"])
    assert connection is not None  # a foreign key holds it
    relation = Relation(
        connection_dsn=_address(connection),
        relation=source["relation"],
        query=source["query"],
        columns=columns,
        statement_timeout=connection["statement_timeout"],
    )
    with slot(context().db, job, connection["name"]) as pause:
        if pause is not None:
            return Wait(pause, waiting_for="free_connection")
        with failing():
            return _export(job, relation, definition)


@contextmanager
def failing() -> Iterator[None]:
    """What the source or object storage did becomes the job's wait, retry or failure."""
    try:
        yield
    except SourceError as error:
        kind = Outage if error.code in OUTAGES else PermanentFailure
        raise kind(error.code, **error.details) from error
    except StorageAway as error:
        raise Outage("storage_unreachable", **error.details) from error
    except StorageRefused as error:
        raise TransientFailure("storage_refused", **error.details) from error
    except StorageMismatch as error:
        raise TransientFailure("storage_mismatch") from error


def _export(
    job: Leased[ExportSubject], relation: Relation, definition: Definition, unpublished: Sequence[str] = ()
) -> Advance:
    """Write the files; every object is in the ledger before it exists, and its key names job and claim."""
    store = storage()
    rows: list[int] = []

    def target(suffix: str, media_type: str) -> Upload:
        key = f"exports/{job.id}/{job.claim_id}/{job.subject.dataset}.{suffix}"
        rows.append(job.note("s3_object", {"key": key}))
        return store.open_upload(key, media_type, waiting=job.heartbeat)

    exported = export(relation, specs(definition), target, beat=job.heartbeat)
    job.heartbeat(force=True, records=exported.records, bytes=sum(file.bytes for file in exported.files))
    return Advance(
        keep=rows,
        records=exported.records,
        unpublished=[*exported.unpublished, *unpublished],
        removed=exported.removed,
        files=[
            {
                "name": f"{job.subject.dataset}.{file.suffix}",
                "format": file.format,
                "media_type": file.media_type,
                **({"compress": file.compress} if file.compress else {}),
                "key": file.key,
                "bytes": file.bytes,
                "sha256": file.sha256,
                "etag": file.etag,
            }
            for file in exported.files
        ],
    )


def _pinned(subject: ExportSubject) -> tuple[Row, Definition]:
    db = context().db
    found = registry.definition(db, subject.dataset, subject.definition)
    source = registry.source(db, subject.source, subject.source_revision)
    assert found is not None
    assert source is not None  # foreign keys hold both
    return source, Definition.parse(found["body"])


def _address(connection: Row) -> str:
    dsn = os.environ.get(connection["secret"])
    if not dsn:
        raise PermanentFailure("unknown_secret")
    try:
        return secured(dsn)
    except BadAddress as error:
        raise PermanentFailure("bad_address") from error
