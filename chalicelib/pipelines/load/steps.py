"""The one step of a load: read and check everything, then write it, its record and the job's end in one transaction."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import batched
from typing import cast

import psycopg

from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.datasets.store import TYPES, StoreColumn, StoreMismatch, prepare_store, store_columns, store_key
from chalicelib.db import Database, DatabaseAway, Sql, statements
from chalicelib.engine import Finished, Leased, Outage, PermanentFailure, TransientFailure, Wait
from chalicelib.exports.errors import StorageMismatch, StorageRefused
from chalicelib.exports.files import Dialect
from chalicelib.pipelines import context
from chalicelib.pipelines.export.staging import drop
from chalicelib.pipelines.export.steps import failing, storage

from . import LoadRequest, LoadSubject, upload_key
from .merging import merge_statement
from .rows import BadRow, Checked, Records, Row, Unfit

SQL = statements("chalicelib.pipelines.load")

BATCH = 5_000
"""Rows of one COPY: a transaction that takes a moment, and between two of them the lease is extended."""

LONGEST, SHORTEST = 100.0, 10.0
"""Seconds that the writing transaction may take; with less left of the invocation it isn't begun."""

ROOM = 30
"""Seconds of an invocation without which no load is begun, unless a whole invocation has no more."""


def load(job: Leased[LoadSubject]) -> Finished | Wait:
    """Load the rows: all of them, once, or none.

    They go into a table of their own first. Nobody sees anything of them before the transaction that also holds the
    record of the load and the job's end; a worker that dies before leaves a table that cleanup drops.
    """
    if (left := job.seconds_left()) < ROOM and not job.checkpoint:
        job.save({"handed_over": True})
        return Wait(left)  # until this invocation is over, for it would have it at once again
    at, request = context(), cast(LoadRequest, job.request)
    found = registry.definition(at.db, job.subject.dataset, job.subject.definition)
    assert found is not None  # a foreign key of its dataset holds it
    definition = Definition.kept(found["body"])
    columns = store_columns(definition)
    with _unfit(), _blaming(), _staged(job, at.db, columns) as table:
        rows = _fill(job, at.db, table, _rows(job, request, definition))
        at.db.run(f"analyze staging.{table}")
        _write(job, request, definition, table, rows)
    return Finished()


@contextmanager
def _staged(job: Leased[LoadSubject], db: Database, columns: Sequence[StoreColumn]) -> Iterator[str]:
    """A table of the staging schema for the rows; dropped at the end, or by cleanup."""
    table = f"job_{job.id.hex}_{job.claim_id}"
    job.note("staging", {"table": table})
    try:
        declared = ", ".join(f"c{n} {TYPES[column.type]}" for n, column in enumerate(columns))
        db.run(f"create unlogged table staging.{table} ({declared})")
        yield table
    finally:
        with suppress(DatabaseAway):
            drop(db, table)


def _rows(job: Leased[LoadSubject], request: LoadRequest, definition: Definition) -> Iterator[Row]:
    """The rows as PostgreSQL takes them; those of a body were seen to fit when it was accepted."""
    dialect = Dialect(**request.dialect.model_dump())
    if request.upload is None:
        found = Records([request.body.encode()], dialect, as_array=request.as_array)
    else:
        announced = context().db.one(SQL.find_upload_bytes, upload=request.upload)
        size = announced["bytes"] if announced else None  # the row goes when the object is gone
        found = Records(storage().read(upload_key(request.upload), size), dialect)

    def alive() -> None:
        job.heartbeat()
        _in_time(job)

    yield from Checked(found, store_columns(definition), store_key(definition), dialect, alive, found.header)


def _fill(job: Leased[LoadSubject], db: Database, table: str, rows: Iterator[Row]) -> int:
    count = 0
    for batch in batched(rows, BATCH, strict=False):
        with db.transaction() as tx, tx.connection.cursor().copy(f"copy staging.{table} from stdin") as copy:
            for row in batch:
                copy.write_row(row)
        count += len(batch)
        job.heartbeat(records=count)
        _in_time(job)
    return count


def _write(job: Leased[LoadSubject], request: LoadRequest, definition: Definition, table: str, rows: int) -> None:
    dataset = job.subject.dataset
    patience = min(LONGEST, _in_time(job) - SHORTEST / 2)
    job.heartbeat(force=True, records=rows, total=rows)
    job.require(patience)
    with job.transaction() as tx:
        if registry.is_deleted(tx, dataset):  # and until the end it can't be
            raise PermanentFailure("dataset_deleted")
        job.hold(tx)
        tx.run(f"set local statement_timeout = '{int(patience)}s'")
        # A crash of the server empties an unlogged table, and the next connection finds it so.
        staged = tx.run(f"select count(*) as rows from staging.{table}")[0]["rows"]  # noqa: S608 - named by job and claim
        if staged != rows:
            raise Outage("staging_mismatch")
        dropped = prepare_store(tx, dataset, definition, anew=request.mode == "replace")
        done = _merged(tx, dataset, definition, table, request)
        done["deleted"] += dropped
        tx.run(SQL.record_load, job=job.id, dataset=dataset, mode=request.mode, rows=rows, **done)
        job.finish(tx)


def _merged(tx: Sql, dataset: str, definition: Definition, table: str, request: LoadRequest) -> dict[str, int]:
    statement = merge_statement(
        dataset, store_columns(definition), store_key(definition), table, replace=request.mode == "replace"
    )
    return tx.run(statement)[0]


def _in_time(job: Leased[LoadSubject]) -> float:
    """The seconds left of this invocation, if that is enough for what remains to be done."""
    left = job.seconds_left()
    if left < SHORTEST:
        raise TransientFailure("load_timeout")
    return left


@contextmanager
def _unfit() -> Iterator[None]:
    """What is wrong with the rows ends the job; nothing of them is in the details."""
    try:
        yield
    except Unfit as unfit:
        told = {"rows": [_told(bad) for bad in unfit.bad]} if unfit.bad else {}
        raise PermanentFailure(unfit.code, **unfit.details, **told) from None
    except StoreMismatch as mismatch:
        raise PermanentFailure("store_mismatch", column=mismatch.column) from None


def _told(bad: BadRow) -> dict[str, str | int]:
    return {"row": bad.row, "column": bad.column, "reason": bad.reason}  # as a refusal's, without the value


@contextmanager
def _blaming() -> Iterator[None]:
    """Trouble of object storage and the database: what passes is waited for, what comes of the rows fails."""
    try:
        with failing():
            try:
                yield
            except StorageRefused as refused:
                if refused.details.get("status") == 404:
                    raise PermanentFailure("upload_missing") from None
                raise
            except StorageMismatch:
                raise PermanentFailure("upload_changed") from None
    except psycopg.errors.LockNotAvailable as error:
        raise Outage("store_busy", sqlstate=error.sqlstate) from None
    except psycopg.errors.QueryCanceled as error:
        raise TransientFailure("load_timeout", sqlstate=error.sqlstate) from None
    except psycopg.Error as error:
        if (error.sqlstate or "").startswith(("21", "22", "23", "54")):
            raise PermanentFailure("invalid_rows", sqlstate=error.sqlstate) from None
        raise
