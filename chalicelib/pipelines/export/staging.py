"""A file as a PostgreSQL relation: a table in Leaseway's own database, for one job and claim, there for one export."""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import batched
from typing import Any, Protocol

import psycopg

from chalicelib.db import Database, DatabaseAway, Row, Sql
from chalicelib.engine import Leased
from chalicelib.exports.errors import SourceError, naming
from chalicelib.exports.files import COLUMN_TYPES, Cell, Dialect, FileFault, Reading, converter, takes
from chalicelib.exports.formats import Column, quoted
from chalicelib.exports.relation import Relation
from chalicelib.exports.storage import Store

BATCH = 5_000
"""Records of one COPY: a transaction that takes a moment, and between two of them the lease is extended."""

STATEMENT_TIMEOUT = 3600
"""Seconds for one file's COPY out of the table; the functions' own time-out is made for short statements."""

TABLE = re.compile(r"job_[0-9a-f]{32}_[0-9]+(_copy)?")


class OutOfTime(Exception):
    """The invocation is nearly over; another one goes on."""


def key_of(job: Leased[Any], suffix: str) -> str:
    """Where a file goes: the key names job and claim, so that no two claims ever write the same object."""
    return f"exports/{job.id}/{job.claim_id}/{job.subject.dataset}.{suffix}"


def table_of(job: Leased[Any], suffix: str = "") -> str:
    """A staging table's name: it names job and claim, too."""
    return f"job_{job.id.hex}_{job.claim_id}{suffix}"


class Filling(Protocol):
    """What is remembered of a table while its file is exported: the one that is whole, and when to stop."""

    filled: str | None

    def beat(self, **progress: int) -> None:
        """Called between batches; OutOfTime ends the work of this invocation."""


@contextmanager
def staged(
    job: Leased[Any],
    db: Database,
    dsn: str,
    store: Store,
    source: Row,
    columns: Sequence[Column],
    filling: Filling,
) -> Iterator[Relation]:
    """The source's file as a relation with the columns that are published; it is dropped at the end, or by cleanup.

    One that an earlier invocation has filled is taken as it is.

    Raises SourceError where the file lacks a column, has it of another type, or isn't the one that was registered.
    """
    check(source, columns)
    dialect = Dialect(**source["file"]["dialect"])
    table = filling.filled or table_of(job)
    job.note("staging", {"table": table})
    kept = False
    try:
        if filling.filled is None:
            declared = ", ".join(f"c{n} {COLUMN_TYPES[column.type]}" for n, column in enumerate(columns))
            # Unlogged: a crash of the server empties it, which the number of exported records shows.
            db.run(f"create unlogged table staging.{table} ({declared})")
            _fill(db, store, source, dialect, columns, table, filling)
            filling.filled = table
        yield Relation(
            connection_dsn=dsn,
            relation=f"staging.{table}",
            query=None,
            columns=[Column(column.name, column.type, f"c{n}") for n, column in enumerate(columns)],
            statement_timeout=STATEMENT_TIMEOUT,
            name=source["name"],
        )
    except OutOfTime:
        kept = filling.filled is not None  # for the next invocation
        raise
    finally:
        if not kept:
            with suppress(DatabaseAway):
                drop(db, table)


def check(source: Row, columns: Sequence[Column]) -> None:
    """Refuse columns that the source's file lacks or has of another type, with SourceError."""
    file = source["file"]
    # A column without a value, and any column of no records, has no type that could differ.
    empty = {column["name"] for column in file["columns"] if column["nulls"] == file["records"]}
    types = {column["name"]: column["type"] for column in file["columns"]}
    changed = [
        column.source
        for column in columns
        if column.source not in types or not (column.source in empty or takes(types[column.source], column.type))
    ]
    if changed:
        raise SourceError("source_changed", None, relation=source["name"], **naming(changed))


def drop(db: Sql, table: str) -> None:
    """Drop a staging table; one that isn't there is fine."""
    if not TABLE.fullmatch(table):
        raise ValueError(table)
    db.run(f"drop table if exists staging.{quoted(table)}")


def drop_unless_locked(db: Database, table: str) -> None:
    """Drop a staging table at once where nothing is in the way: cleanup drops it anyway."""
    # A worker that lost its lease may still read it.
    with suppress(DatabaseAway, psycopg.Error), db.transaction() as tx:
        tx.run("set local lock_timeout = '1s'")
        drop(tx, table)


def _fill(
    db: Database,
    store: Store,
    source: Row,
    dialect: Dialect,
    columns: Sequence[Column],
    table: str,
    filling: Filling,
) -> None:
    file, read = source["file"], hashlib.sha256()

    def chunks() -> Iterator[bytes]:
        for chunk in store.read(file["key"]):
            read.update(chunk)
            yield chunk

    takers = [(column.source, converter(column.type, dialect)) for column in columns]
    reading, count = Reading(chunks(), dialect, trimmed="left_out" in file), 0
    try:
        for batch in batched(reading, BATCH, strict=False):
            rows = [[_taken(record.get(name), take) for name, take in takers] for _, record in batch]
            with db.transaction() as tx, tx.connection.cursor().copy(f"copy staging.{table} from stdin") as copy:
                for row in rows:
                    copy.write_row(row)
            count += len(rows)
            filling.beat(total=file["records"])
    except FileFault:
        raise _another_file(source) from None
    if (count, read.hexdigest()) != (file["records"], file["sha256"]):
        raise _another_file(source)


def _taken(cell: Cell, take: Callable[[str], str]) -> str | None:
    return None if cell is None else take(cell)


def _another_file(source: Row) -> SourceError:
    """What the object holds isn't what was read when it was registered."""
    return SourceError("source_changed", relation=source["name"])
