"""A relation of a source's database, written as files: all from one snapshot, by one connection, memory flat."""

# ruff: noqa: S608 - names are quoted by the server or by `quoted`, the query is an operator's

import select
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import accumulate, takewhile
from typing import Any, Protocol, override

import psycopg
from psycopg import pq
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import error_from_result

from chalicelib.db import statements

from .errors import SourceError, StorageAway, StorageRefused, blaming_source, naming
from .formats import STAGING, Column, FileSpec, Format, copy_statement, piece_statement, quoted, search_statement
from .gzipped import MEDIA_TYPE as GZIP
from .gzipped import Gzip
from .storage import Stored
from .types import Found

SQL = statements("chalicelib.exports")

BATCH = 256 * 1024
"""Bytes joined before they are cleaned, hashed and sent on."""

ROW = 256
"""What a row counts for beside its bytes. Narrow ones would be so many in a batch that the garbage collector, which
goes through all of them again and again, takes more than the rest: 3,000,000 take 2.5 s of CPU then, and 1.1 s so."""

LARGEST = 128 * 1024 * 1024
"""Bytes that a record may have in a file: it is held several times over, and who is killed for it tells nobody why."""

QUIET = 1.0
"""Seconds without a row (the server is sorting, or waits for a lock) after which the caller's beat is called."""

# A connection that died without a word ends an export within about a minute.
REACH: dict[str, str | int] = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
    "application_name": "leaseway export",
}

# Everything that changes how PostgreSQL writes a value, whatever the server, database, role or DSN has set.
FIXED = {
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "1",
    "bytea_output": "hex",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
}

SNAPSHOT = f"""
begin isolation level repeatable read read only;
{"".join(f"set local {name} = '{value}';" for name, value in FIXED.items())}
set local jit = off;
set local idle_in_transaction_session_timeout = '5min';
"""

STILL_FIXED = "select " + " and ".join(
    f"pg_catalog.current_setting('{name}') operator(pg_catalog.=) '{value}'" for name, value in FIXED.items()
)

# A record is searched for in the order in which the source gives its records: the same one each time.
SEARCH = """
set local max_parallel_workers_per_gather = 0;
set local synchronize_seqscans = off;
"""

ONLY_POSTGRESQL = "set local search_path = pg_catalog, pg_temp"
"""For what is asked of the catalogue alone, so that its names needn't be qualified (elsewhere they are: types.py)."""

SILENCE = 40.0
"""Seconds that a small statement may take: a pool that has no connection left takes it, and says nothing for ever."""

LONGEST_NAME = 63
"""Bytes that PostgreSQL keeps of a name."""

LOCK_WAIT = "30s"
"""How long a statement waits for somebody's ALTER TABLE."""


@dataclass(frozen=True)
class Relation:
    """A table or view (by its name, quoted as in SQL where it must be) or a query, and what is published of it.

    Each of its statements may take ``statement_timeout`` seconds; without it, what the login's own setting says.
    """

    connection_dsn: str = field(repr=False)
    relation: str | None
    query: str | None
    columns: Sequence[Column]
    statement_timeout: int | None = None
    name: str | None = None
    """What it is called in failures; the relation's own name, else."""


class Target(Protocol):
    """Where one file goes."""

    key: str

    def write(self, data: bytes, /) -> None:
        """Take the next bytes."""

    def complete(self) -> Stored:
        """Make the file visible, checked against what was written."""

    def abort(self) -> None:
        """Leave nothing behind."""


class Beat(Protocol):
    """Called between units of work; what it raises ends the export."""

    def __call__(self, *, records: int, bytes: int, total: int) -> None:
        """Records so far (of a file: the work of all files, divided by their number), bytes of all files, total."""


@dataclass(frozen=True)
class File:
    """A file that was written and checked; ``compress`` is the media type of what wraps it, if something does."""

    format: str
    suffix: str
    key: str
    bytes: int
    sha256: str
    etag: str
    media_type: str
    compress: str | None = None


@dataclass(frozen=True)
class Exported:
    """What an export made: every file holds ``records`` records; ``removed`` characters had no place in XML.

    ``unpublished`` are the relation's columns that aren't among the published ones.
    """

    records: int
    files: list[File]
    removed: int
    unpublished: list[str]


def export(
    relation: Relation,
    specs: Sequence[FileSpec],
    open_target: Callable[[str, str], Target],
    *,
    beat: Beat,
    counted: "Callable[[Source, int], None]" = lambda source, total: None,
) -> Exported:
    """Write a relation in each format; ``open_target`` gets a file's suffix and media type when its turn comes.

    ``counted`` gets the snapshot and its number of records before anything is written; it may take another way from
    there and raise, which ends the export.

    Raises:
        SourceError: the source is away, refuses, or isn't what the columns say.
        StorageAway: object storage doesn't answer.
    """
    files: list[File] = []
    removed = written = total = 0
    progress = {"records": 0, "bytes": 0, "total": 0}

    def show(records: int) -> None:
        progress.update(records=records, bytes=written, total=total)
        beat(**progress)

    with snapshot(relation) as source:
        format_ = STAGING  # while they are counted, or staged
        source.check_names()
        try:
            for number in source.count():
                total = number or 0
                show(0)
            counted(source, total)
            for done, spec in enumerate(specs):
                format_ = spec.format
                writing = Writing(spec, open_target)
                try:
                    writing.write(format_.header(relation.columns))
                    rows = 0
                    for batch in source.records(format_):
                        for part in writing.parts(batch):
                            data, dropped = format_.records(part, first=not rows)
                            rows += len(part)
                            removed += dropped
                            written += writing.write(data, len(part))
                        show((done * total + rows) // len(specs))
                    if rows != total:  # the query's own doing: it gives other records each time it runs
                        raise SourceError("source_changed", relation=source.name, records=rows)
                    writing.write(format_.footer)
                    files += writing.complete()
                except BaseException:
                    writing.abort()
                    raise
        except SourceError as error:
            if error.code == "source_bad_record":
                error.details |= source.locate(format_, lambda: beat(**progress))
            raise
        written = sum(file.bytes for file in files)
        show(total)
    return Exported(total, files, removed, source.unpublished)


def variants(spec: FileSpec) -> list[tuple[str, str, str | None]]:
    """The file and its gzip variant, if there is one: suffix, media type of the object, what compresses it."""
    format_ = spec.format
    plain = (format_.suffix, format_.media_type, None)
    return [plain, (f"{format_.suffix}.gz", GZIP, GZIP)] if spec.gzip else [plain]


def written_file(format_: Format, key: str, stored: Stored, compress: str | None) -> File:
    """A file of this format as it was stored."""
    return File(
        format_.name,
        format_.suffix + (".gz" if compress else ""),
        key,
        stored.bytes,
        stored.sha256,
        stored.etag,
        format_.media_type,
        compress,
    )


class Writing:
    """A file while it is written, and its gzip variant beside it if there is one."""

    def __init__(self, spec: FileSpec, open_target: Callable[[str, str], Target], first: int = 0):
        self._format = spec.format
        self._gzip = Gzip(first) if spec.gzip else None
        self._targets: list[Target] = []
        try:
            for suffix, media_type, _ in variants(spec):
                self._targets.append(open_target(suffix, media_type))
        except BaseException:
            self.abort()
            raise

    def parts(self, batch: list[memoryview]) -> Iterator[list[memoryview]]:
        """The rows in as many parts as ``write`` may take."""
        while self._gzip and len(batch) > (room := self._gzip.room):
            yield batch[:room]
            batch = batch[room:]
        if batch:
            yield batch

    def write(self, data: bytes, records: int = 0) -> int:
        """Take bytes that hold so many whole records; how many bytes went out."""
        self._targets[0].write(data)
        if not self._gzip:
            return len(data)
        self._targets[1].write(compressed := self._gzip.write(data, records))
        return len(data) + len(compressed)

    def complete(self) -> list[File]:
        """Make them visible, checked against what was written."""
        if self._gzip:
            self._targets[1].write(self._gzip.end())
        compressed = (None, GZIP)
        return [
            written_file(self._format, target.key, target.complete(), compress)
            for target, compress in zip(self._targets, compressed, strict=False)
        ]

    def abort(self) -> None:
        """Leave nothing behind."""
        for target in self._targets:
            with suppress(StorageAway, StorageRefused):
                target.abort()


class _Connection(psycopg.Connection):
    """Waits ``patience`` seconds for an answer, then the server counts as away; without it for ever."""

    patience: float | None = None

    @override
    def wait[T](self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        return super().wait(gen, interval=interval, timeout=timeout or self.patience)


def reach(dsn: str) -> _Connection:
    """Open a connection to a source's server; one that dies without a word is noticed."""
    given = conninfo_to_dict(dsn)
    missing = {key: value for key, value in REACH.items() if key not in given}
    # Whatever a name holds can be asked for, before the transaction that fixes the encoding too.
    asked = make_conninfo(dsn, **missing, client_encoding="UTF8")
    return _Connection.connect(asked, autocommit=True, prepare_threshold=None)


@contextmanager
def snapshot(relation: Relation) -> Iterator["Source"]:
    """A connection in a transaction that sees one moment of the source and can't write; checked against the columns."""
    name = relation.name or relation.relation or "query"
    with blaming_source(name):
        connection = reach(relation.connection_dsn)
    connection.patience = SILENCE
    try:
        with blaming_source(name):
            lockable = _lockable(connection, relation.relation) if relation.relation is not None else None
            connection.execute(f"{SNAPSHOT} set local lock_timeout = '{LOCK_WAIT}'")
            if relation.statement_timeout is not None:
                connection.execute(f"set local statement_timeout = '{relation.statement_timeout}s'")
            if lockable:
                _lock(connection, lockable)
            connection.execute("savepoint ready")
        source = Source(connection, relation, name)
        source.check()
        connection.patience = None  # what comes now may take its time, and beats meanwhile
        yield source
    finally:
        hang_up(connection)


def _lockable(connection: psycopg.Connection[Any], relation: str) -> str | None:
    """The name, as the server quotes it, if it is a table's; what is wrong with it is told by who reads it."""
    with suppress(psycopg.ProgrammingError, psycopg.errors.UntranslatableCharacter):
        found = connection.execute(SQL.find_table, {"relation": relation}).fetchone()
        return str(found[0]) if found else None
    return None


def _lock(connection: psycopg.Connection[Any], table: str) -> None:
    """Hold a table as it is before the snapshot is taken, which LOCK doesn't do.

    Else one that is emptied or made anew between the snapshot and the first look at it would seem to have no records.
    A reader of single columns may not, and goes without.
    """
    with suppress(psycopg.ProgrammingError), connection.transaction():
        connection.execute(f"lock table {table} in access share mode")


def hang_up(connection: psycopg.Connection[Any]) -> None:
    """Close a connection; a statement that still runs ends, too: a server that sorts wouldn't notice the silence."""
    if connection.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=2)
    connection.close()


class Source:
    """A relation in its snapshot."""

    def __init__(self, connection: psycopg.Connection, relation: Relation, name: str):
        self.name = name
        self.unpublished: list[str] = []
        self.connection = connection
        self._relation = relation
        self.columns = relation.columns
        self._from = f"(\n{relation.query}\n)"

    def check(self) -> None:
        """Refuse a column that is missing or has another type than it is declared with."""
        if unsaid := [column for column in self.columns if not self._can_say(column.source)]:
            raise self._changed(unsaid, "22P05")
        with self._blaming(), self._no_record_to_blame():
            if self._relation.relation is not None:
                # The server reads the name and quotes it, so that it never reaches a statement as it was written.
                found = self.connection.execute(
                    "select %s::pg_catalog.regclass::pg_catalog.text", [self._relation.relation]
                ).fetchone()
                self._from = str(found[0]) if found else ""
            described = self._describe()
            types = types_of(self.connection, described)
            published = {column.source for column in self.columns}
            self.unpublished = [name for name in self._every() if name not in published]
        typed = zip(self.columns, described, strict=True)
        if retyped := [column for column, oid in typed if not column.written.takes(types[oid])]:
            raise self._changed(retyped)
        # A reader's search_path may lead anywhere, so what an extension writes its types with is named with its schema.
        self.columns = [
            replace(column, schema=types[oid].schema) for column, oid in zip(self.columns, described, strict=True)
        ]

    def check_names(self) -> None:
        """Refuse a published name that the source's encoding can't say: its server writes the names, too."""
        if unsaid := [column.name for column in self.columns if not self._can_say(column.name)]:
            raise SourceError("source_encoding", "22P05", relation=self.name, **naming(unsaid))

    def _can_say(self, name: str) -> bool:
        """Whether the source's encoding has the characters of a name."""
        if name.isascii() or self.connection.info.parameter_status("server_encoding") == "UTF8":
            return True
        with self._blaming(), suppress(psycopg.errors.UntranslatableCharacter), self.connection.transaction():
            self.connection.execute("select %s::pg_catalog.text", [name])
            return True
        return False

    def identity(self) -> str | None:
        """Which table or view it is, on which server; None of a query."""
        with self._blaming():
            found = self.connection.execute(SQL.find_identity, {"relation": self._relation.relation}).fetchone()
        return str(found[0]) if found else None

    def _describe(self) -> list[int]:
        """The type of each column."""
        # The server would cut a longer name, and find another column.
        if too_long := [column for column in self.columns if len(column.source.encode()) > LONGEST_NAME]:
            raise self._changed(too_long, "42703")
        names = [f"source.{quoted(column.source)}" for column in self.columns]
        statement = f"select {', '.join(names)} from {self._from} as source limit 0"
        try:
            # With parameters, even none, the server takes one statement only: a query can't end ours and begin its own.
            cursor = self.connection.execute(statement, binary=True)
        except psycopg.errors.UndefinedColumn as error:
            in_bytes = self.connection.info.parameter_status("server_encoding") == "SQL_ASCII"  # else in characters
            sizes = (len(name.encode() if in_bytes else name) + len(", ") for name in names)
            begins = accumulate(sizes, initial=len("select "))
            position = int(error.diag.statement_position or 1) - 1
            if not (found := list(takewhile(lambda begin: begin <= position, begins))) or len(found) > len(names):
                raise
            self.connection.execute("rollback to ready")
            there = self._every()
            others = [column for column in self.columns[len(found) :] if there and column.source not in there]
            raise self._changed([self.columns[len(found) - 1], *others], "42703") from None
        return [column.type_code for column in cursor.description or []]

    def describe(self) -> list[tuple[str, Found]]:
        """Every column: its name and its type."""
        with self._blaming():
            cursor = self.connection.execute(f"select * from {self._from} as source limit 0", binary=True)
            found = [(column.name, column.type_code) for column in cursor.description or []]
            types = types_of(self.connection, [oid for _, oid in found])
        return [(name, types[oid]) for name, oid in found]

    def _every(self) -> list[str]:
        """The name of each column; none where the reader may not ask for all of them, who was granted single ones."""
        with suppress(psycopg.errors.InsufficientPrivilege), self.connection.transaction():
            every = self.connection.execute(f"select * from {self._from} as source limit 0", binary=True).description
            return [column.name for column in every or []]
        return []

    def _changed(self, columns: Sequence[Column], sqlstate: str | None = None) -> SourceError:
        named = naming([column.source for column in columns])
        return SourceError("source_changed", sqlstate, relation=self.name, **named)

    def count(self, tail: str = "") -> Iterator[int | None]:
        """How many records the snapshot holds, at last; None while the server is busy counting.

        ``tail`` is what stands behind FROM, where the relation is called source.
        """
        for batch in self._copy(f"copy (select pg_catalog.count(*) from {self._from} as source {tail}) to stdout"):
            yield int(bytes(batch[0])) if batch else None

    def rows(self, tail: str = "", *more: str) -> Iterator[list[memoryview]]:
        """Batches of rows as COPY's text writes them: the columns and ``more`` expressions; empty while none come.

        ``tail`` is what stands behind FROM, where the relation is called source.
        """
        picked = ", ".join([*(f"source.{quoted(column.source)}" for column in self.columns), *more])
        return self._copy(f"copy (select {picked} from {self._from} as source {tail}) to stdout")

    def filled(self, names: Sequence[str]) -> list[int]:
        """How many records the snapshot holds, then how many of them have a value in each of these columns."""
        values = "".join(f", pg_catalog.count(source.{quoted(name)})" for name in names)
        with self._blaming():
            asked = f"select pg_catalog.count(*){values} from {self._from} as source"
            counted = self.connection.execute(asked).fetchone()
        return list(counted or [])

    def first(self, names: Sequence[str], number: int) -> list[tuple[str | None, ...]]:
        """These columns of the first records, each value as the server writes it."""
        picked = ", ".join(f"source.{quoted(name)}::pg_catalog.text" for name in names)
        with self._blaming():
            return self.connection.execute(
                f"select {picked} from {self._from} as source limit {number}", binary=True
            ).fetchall()

    def records(self, format_: Format) -> Iterator[list[memoryview]]:
        """Batches of the rows of a file; an empty one while the server has none to give."""
        return self._copy(copy_statement(format_, self.columns, self._from))

    def piece(self, format_: Format, after: int, last: int) -> Iterator[list[memoryview]]:
        """Batches of the rows of a file that stand behind an ordinal, up to the last one; of a staging table."""
        return self._copy(piece_statement(format_, self.columns, self._from, after, last))

    def locate(self, format_: Format, alive: Callable[[], None]) -> dict[str, str | int]:
        """Where a record is that can't be written: its number, as the source gives them, and its column.

        Found by reading once more, in the same snapshot, until the server stops; then with half of the columns, and a
        half of those. What fails without any column is nobody's. Nothing is said where nothing is found.
        """
        try:
            before = self._rows_before_failure(format_, self.columns, None, alive)
            if before is None:
                return {}
            found: dict[str, str | int] = {"record": before + 1}
            if self._rows_before_failure(format_, [], before + 1, alive) is None:
                suspects = self.columns
                while len(suspects) > 1:
                    half = suspects[: len(suspects) // 2]
                    innocent = self._rows_before_failure(format_, half, before + 1, alive) is None
                    suspects = suspects[len(half) :] if innocent else half
                found["column"] = suspects[0].source
            return found
        except SourceError:
            return {}

    def _rows_before_failure(
        self, format_: Format, columns: Sequence[Column], limit: int | None, alive: Callable[[], None]
    ) -> int | None:
        with self._blaming():
            self.connection.execute(f"rollback to ready; {SEARCH}")
        rows = 0
        try:
            for batch in self._copy(search_statement(format_, columns, self._from, limit)):
                rows += len(batch)
                alive()
        except SourceError as error:
            if error.code == "source_bad_record":
                return rows
            raise
        return None

    @contextmanager
    def _no_record_to_blame(self) -> Iterator[None]:
        """A relation's name, or a query, that the source's encoding can't say is as good as gone."""
        try:
            yield
        except psycopg.errors.UntranslatableCharacter as error:
            raise SourceError("source_changed", error.sqlstate, relation=self.name) from None

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        try:
            with blaming_source(self.name, self._lacking):
                yield
        except SourceError as error:
            # PostGIS has one SQLSTATE for whatever it can't turn or write: the one of PostgreSQL's own faults.
            if error.details.get("sqlstate") == "XX000" and any(column.type == "geometry" for column in self.columns):
                error.code = "source_bad_record"
            raise

    def _lacking(self, message: str) -> str | None:
        with suppress(psycopg.Error):
            self.connection.execute(f"rollback to ready; {ONLY_POSTGRESQL}")
            asked = self._relation.relation or self._relation.query
            row = self.connection.execute(SQL.find_lacking_privilege, {"message": message, "asked": asked}).fetchone()
            return str(row[0]) if row else None
        return None

    def _copy(self, statement: str) -> Iterator[list[memoryview]]:
        with self._blaming():
            for batch in rows_of(self.connection, statement):
                if batch and (size := len(batch[-1])) > LARGEST:  # a large row ends its batch
                    raise SourceError("record_too_large", relation=self.name, bytes=size, maximum=LARGEST)
                yield batch
            # A query may set them itself, from one record to the next: then nobody knows what was written how.
            if self.connection.execute(STILL_FIXED).fetchone() != (True,):
                raise SourceError("source_changed", "55P02", relation=self.name)


def types_of(connection: psycopg.Connection[Any], oids: list[int]) -> dict[int, Found]:
    """The types of columns that a server has described."""
    return {oid: Found(*found) for oid, *found in connection.execute(SQL.describe_types, {"oids": oids})}


def rows_of(connection: psycopg.Connection[Any], statement: str) -> Iterator[list[memoryview]]:
    """What a COPY to stdout gives, in batches of rows; an empty one for each second in which it gives nothing."""
    # psycopg's own copy() would wait for the first row without a sign of life, and takes twice the time per row.
    server = connection.pgconn
    socket = select.poll()
    socket.register(server.socket, select.POLLIN)
    for _ in _asked(server, socket, statement):
        yield []
    _expect(server, server.get_result(), pq.ExecStatus.COPY_OUT)
    batch: list[memoryview] = []
    size = 0
    row = server.get_copy_data
    while (length := (found := row(1))[0]) >= 0:  # always one row a message
        if length:
            batch.append(found[1])
            size += length + ROW
        if size >= BATCH or not (length or socket.poll(QUIET * 1000)):
            yield batch
            batch, size = [], 0
        if not length:
            server.consume_input()
    if batch:  # also what came before the server broke off
        yield batch
    _end(server)


def patiently(connection: psycopg.Connection[Any], statement: str) -> Iterator[None]:
    """Run a statement that gives no rows; something is yielded for each second that it takes."""
    server = connection.pgconn
    socket = select.poll()
    socket.register(server.socket, select.POLLIN)
    yield from _asked(server, socket, statement)
    _end(server)


def _asked(server: pq.abc.PGconn, socket: "select.poll", statement: str) -> Iterator[None]:
    server.send_query_params(statement.encode(), None)
    while server.flush() or server.is_busy():
        if not socket.poll(QUIET * 1000):
            yield
        server.consume_input()


def _end(server: pq.abc.PGconn) -> None:
    _expect(server, server.get_result(), pq.ExecStatus.COMMAND_OK)
    while server.get_result():
        pass


def _expect(server: pq.abc.PGconn, result: pq.abc.PGresult | None, status: pq.ExecStatus) -> None:
    if result is None or result.status != status:
        while server.get_result():  # what follows the error, so that the next statement may be sent
            pass
        raise error_from_result(result) if result else psycopg.OperationalError("no answer")
