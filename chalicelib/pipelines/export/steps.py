"""The one step of an export."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache

import psycopg

from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Row
from chalicelib.engine import Advance, Leased, Outage, PermanentFailure, TransientFailure, Wait
from chalicelib.exports.errors import SourceError, Stale, StorageAway, StorageMismatch, StorageRefused
from chalicelib.exports.formats import Column
from chalicelib.exports.relation import Exported, Relation, Source, export
from chalicelib.exports.storage import Store, Upload
from chalicelib.pipelines import context
from chalicelib.pipelines.addresses import address, loaded_relation

from . import ExportSubject
from .resumable import PASSING, Copied, Resumable
from .slots import slot
from .specs import columns_of, specs
from .staging import STATEMENT_TIMEOUT, OutOfTime, key_of, staged

NOT_HERE = ("0A000", "42P01")
"""What is said of our own table by a standby, for it isn't logged, and by who has lost it in a failover."""


@cache
def storage() -> Store:
    """Object storage of this installation; one client a process."""
    return Store.of(context().settings)


def export_records(job: Leased[ExportSubject]) -> Advance | Wait:
    """Export the source as the definition says; by way of a copy where a direct export may outlast the invocation."""
    source, definition = _pinned(job.subject)
    published = columns_of(definition)
    at = context()
    resumable = Resumable(job, at.settings, at.db, storage(), published, specs(definition))
    try:
        with failing():
            if not resumable.copied:
                with _relation(job, source, published, resumable) as relation:
                    if isinstance(relation, Wait):
                        return relation
                    with suppress(Copied):
                        return _done(job, *_directly(job, relation, resumable, source), source, published)
            return _done(job, *resumable.write(), source, published)
    except OutOfTime:
        return resumable.hand_over()


@contextmanager
def _relation(
    job: Leased[ExportSubject], source: Row, columns: Sequence[Column], resumable: Resumable
) -> Iterator[Relation | Wait]:
    """The source: a file by way of a table, a store as it is, else with one of its connection's slots, or none yet."""
    at = context()
    if source["file"]:
        with staged(job, at.db, at.settings.dsn, storage(), source, columns, resumable) as relation:
            yield relation
        return
    if source["store"]:
        yield Relation(
            connection_dsn=at.settings.dsn,
            relation=loaded_relation(at.db, source["store"], source["name"]),
            query=None,
            columns=columns,
            statement_timeout=STATEMENT_TIMEOUT,
            name=source["name"],
        )
        return
    connection = registry.connection(at.db, source["connection"])
    assert connection is not None  # a foreign key holds it
    relation = Relation(
        connection_dsn=address(connection),
        relation=source["relation"],
        query=source["query"],
        columns=columns,
        statement_timeout=connection["statement_timeout"],
    )
    with slot(at.db, job, connection["name"]) as pause:
        yield relation if pause is None else Wait(pause, waiting_for="free_connection")


@contextmanager
def failing() -> Iterator[None]:
    """What the source or object storage did becomes the job's wait, retry or failure."""
    try:
        yield
    except SourceError as error:
        kind = Outage if error.code in PASSING else PermanentFailure
        raise kind(error.code, **error.details) from error
    except StorageAway as error:
        raise Outage("storage_unreachable", **error.details) from error
    except StorageRefused as error:
        raise TransientFailure("storage_refused", **error.details) from error
    except Stale as error:
        raise TransientFailure("staging_mismatch") from error
    except StorageMismatch as error:
        raise TransientFailure("storage_mismatch") from error
    except psycopg.errors.ProgramLimitExceeded as error:  # of our own tables: a source's error is a SourceError
        raise PermanentFailure("row_too_wide") from error


def _directly(
    job: Leased[ExportSubject], relation: Relation, resumable: Resumable, source: Row
) -> tuple[list[int], Exported]:
    """Write the files; every object is in the ledger before it exists, and its key names job and claim."""
    store = storage()
    rows: list[int] = []

    def away() -> SourceError:
        resumable.read_again()
        return SourceError("source_unreachable", relation=source["name"])

    def counted(snapshot: Source, records: int) -> None:
        if source["file"] and records != source["file"]["records"]:
            raise away()  # a crash of the server empties the table
        resumable.counted(snapshot, records)

    def target(suffix: str, media_type: str) -> Upload:
        key = key_of(job, suffix)
        rows.append(job.note("s3_object", {"key": key}))
        return store.open_upload(key, media_type, waiting=job.heartbeat)

    try:
        return rows, export(relation, resumable.specs, target, beat=resumable.beat, counted=counted)
    except SourceError as error:
        if source["file"] and error.details.get("sqlstate") in NOT_HERE:
            raise away() from None
        raise


def _done(
    job: Leased[ExportSubject], keep: Sequence[int], exported: Exported, source: Row, columns: Sequence[Column]
) -> Advance:
    published = {column.source for column in columns}
    others = [column["name"] for column in source["file"]["columns"]] if source["file"] else []
    job.heartbeat(force=True, records=exported.records, bytes=sum(file.bytes for file in exported.files))
    return Advance(
        keep=keep,
        records=exported.records,
        unpublished=[*exported.unpublished, *(name for name in others if name not in published)],
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
    assert source is not None  # a foreign key holds the one, and what a job has pinned isn't removed
    return source, Definition.kept(found["body"])
