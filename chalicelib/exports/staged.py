"""A source's records in the published order, copied once into a table of Leaseway's own database.

Files that take longer than one invocation are written from there, piece by piece, by whoever's turn it is: the table
never changes, so a piece is the same bytes each time, and a file doesn't show where it was cut.
"""

# ruff: noqa: S608 - a staging table's name is made of a job's id and a claim

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self
from zlib import crc32

import psycopg

from .errors import Stale
from .formats import STAGING, Column, FileSpec
from .gzipped import MEMBER, Gzip
from .relation import File, Source, patiently, rows_of, written_file
from .storage import Part, Store, Upload

PIECE = 5 * MEMBER
"""Records of one COPY out of the table; who resumes a file makes at most so many of them again."""

SAVED = 20
"""A save costs as much as there are parts, so one is worth it once they are a twentieth more: all of them together stay
linear, and who dies loses at most a twentieth of a file."""

Alive = Callable[[], None]
"""Called between units of work; what it raises ends the work."""


@dataclass(frozen=True)
class Staged:
    """A staging table as its copy left it: its records and a hash of them in their order."""

    records: int
    digest: str


def copy_records(
    source: Source, into: psycopg.Connection[Any], table: str, columns: int, *, alive: Callable[[int], None]
) -> int:
    """Make the table and fill it with the source's records in the published order, in the caller's transaction.

    How many they are. One statement on each side, and what comes out of the one goes into the other. ``alive`` gets the
    bytes so far, may raise, and is called while a server works without a word, too.
    """
    size = 0
    names = ", ".join(f"c{n}" for n in range(columns))
    # The ordinal is the place in the COPY. Cached, because nextval writes a record of the log every 32 numbers else.
    ordinal = "ordinal bigint generated always as identity (cache 1000)"
    declared = "".join(f", c{n} text" for n in range(columns))
    into.execute(f"create table {table} ({ordinal}{declared})".encode())
    cursor = into.cursor()
    # Frozen, for nobody sees the table before: else the first who reads writes all of it once more.
    with cursor.copy(f"copy {table} ({names}) from stdin (format text, encoding 'UTF8', freeze)".encode()) as sink:
        for batch in source.records(STAGING):
            if batch:
                sink.write(data := b"".join(batch))
                size += len(data)
            alive(size)
    return cursor.rowcount


def sealed(connection: psycopg.Connection[Any], table: str, alive: Alive) -> Staged:
    """Index a copy by its ordinal and measure it, in the caller's transaction; a second time it is only measured.

    Apart from the copy, so that an invocation need not have the time for both.
    """
    name = table.rpartition(".")[2]
    for statement in (
        f"lock table {table} in share row exclusive mode",  # two at a time would both see no index
        f"create unique index if not exists {name}_ordinal on {table} (ordinal)",
    ):
        for _ in patiently(connection, statement):
            alive()
    return measured(connection, table, alive)


def measured(connection: psycopg.Connection[Any], table: str, alive: Alive) -> Staged:
    """What the table holds now. The hash is the server's own, so the records stay where they are (1.5 s for 3,000,000).

    The ordinal is part of what is hashed, so that the sum, which knows no order, does.
    """
    digest = "coalesce(sum(hash_record_extended(staged, 0)), 0)"
    found: list[str] = []
    for batch in rows_of(connection, f"copy (select count(*), {digest} from {table} as staged) to stdout"):
        found += [bytes(row).decode() for row in batch]
        alive()
    records, hashed = found[0].split()
    return Staged(int(records), hashed)


def columns_of(columns: Sequence[Column]) -> list[Column]:
    """The published columns as they stand in a staging table."""
    return [replace(column, source=f"c{n}", staged=True) for n, column in enumerate(columns)]


# Files from there


@dataclass(frozen=True)
class Cut:
    """Where a part ends: in which piece, after how many of its bytes, and the CRC-32 of those."""

    piece: int = 0
    bytes: int = 0
    crc: int = 0


BEGIN = Cut()


class Output:
    """One file (or its gzip variant) on its way: an upload, and the place in the pieces that its parts reach to."""

    def __init__(self, compress: str | None, upload: Upload, reached: Cut = BEGIN):
        self.compress = compress
        self.upload = upload
        self.reached = reached
        self._saved = len(upload.parts)
        self._cuts: dict[int, Cut] = {}
        self._again = 0
        self._here = Cut()
        self._gzip: Gzip | None = None
        self._skips = False

    @classmethod
    def resumed(cls, state: dict[str, Any], store: Store, waiting: Alive) -> Self:
        """As a checkpoint has it."""
        parts = [Part(*part) for part in state["parts"]]
        upload = store.resume_upload(state["key"], state["upload"], parts, waiting)
        return cls(state["compress"], upload, Cut(*state["reached"]))

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it: the parts that the store has taken, and where the next one begins."""
        parts = self.upload.parts
        self._saved = len(parts)
        self.reached = self._cuts.get(len(parts), self.reached)
        self._cuts = {number: cut for number, cut in self._cuts.items() if number > len(parts)}
        return {
            "compress": self.compress,
            "key": self.upload.key,
            "upload": self.upload.id,
            "parts": [[part.etag, part.sha256, part.bytes] for part in parts],
            "reached": [self.reached.piece, self.reached.bytes, self.reached.crc],
        }

    def begin(self, piece: int) -> None:
        """The bytes that come now are this piece's."""
        self._skips = piece < self.reached.piece
        self._again = self.reached.bytes if piece == self.reached.piece else 0
        self._here = Cut(piece)
        self._gzip = Gzip(piece * PIECE) if self.compress else None

    def write(self, data: bytes, records: int = 0) -> None:
        """Take bytes of the piece that hold so many whole records."""
        if not self._skips:
            self._take(self._gzip.write(data, records) if self._gzip else data)

    def end(self, *, last: bool) -> None:
        """The piece is whole, and with the last one the file."""
        if self._gzip and not self._skips:
            self._take(self._gzip.end())
        if self._again:
            raise Stale
        if last:
            whole = Cut(self._here.piece + 1)
            self._cuts[self.upload.sent + 1] = whole  # where what is left goes
            self.upload.finish()
            self._cuts.clear()
            self.reached = whole

    def _take(self, data: bytes) -> None:
        if self._again:
            known, data = data[: self._again], data[self._again :]
            self._advance(known)
            self._again -= len(known)
            if not self._again and self._here != self.reached:
                raise Stale
        if data:
            self._advance(data)
            sent = self.upload.sent
            self.upload.write(data)
            if self.upload.sent > sent:
                self._cuts[self.upload.sent] = self._here

    def _advance(self, data: bytes) -> None:
        self._here = Cut(self._here.piece, self._here.bytes + len(data), crc32(data, self._here.crc))

    @property
    def due(self) -> bool:
        """Whether there are enough new parts to remember them."""
        return len(self.upload.parts) > self._saved + self._saved // SAVED


class Pieces:
    """A file on its way, plain and gzipped side by side: written piece by piece, from the first that one of them lacks.

    ``removed`` is the number of characters removed before that piece.
    """

    def __init__(self, spec: FileSpec, outputs: Sequence[Output], removed: int = 0):
        self.spec = spec
        self.outputs = outputs
        self._first = min(output.reached.piece for output in outputs)
        self._removed = {self._first: removed}

    @classmethod
    def resumed(cls, spec: FileSpec, state: dict[str, Any], store: Store, waiting: Alive) -> Self:
        """As a checkpoint has it."""
        return cls(spec, [Output.resumed(output, store, waiting) for output in state["outputs"]], state["removed"])

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps of it."""
        outputs = [output.state() for output in self.outputs]
        first = min(output.reached.piece for output in self.outputs)
        return {"outputs": outputs, "removed": self._removed[first]}

    @property
    def due(self) -> bool:
        """Whether there are enough new parts to remember them."""
        return any(output.due for output in self.outputs)

    @property
    def bytes(self) -> int:
        """Bytes that the store has taken."""
        return sum(part.bytes for output in self.outputs for part in output.upload.parts)

    def write(self, source: Source, records: int, alive: Callable[[int], None]) -> int:
        """Write what is missing; the characters removed in all. ``source`` is the staging table.

        ``alive`` gets the records written so far; what it raises leaves the file where it can be gone on with.

        Raises:
            Stale: what is there now isn't what the parts before were made of.
        """
        pieces = max(1, -(-records // PIECE))
        for piece in range(self._first, pieces):
            removed = self._write_piece(source, piece, records, alive, last=piece == pieces - 1)
            self._removed[piece + 1] = self._removed[piece] + removed
        return self._removed[pieces]

    def _write_piece(
        self, source: Source, piece: int, records: int, alive: Callable[[int], None], *, last: bool
    ) -> int:
        format_, removed = self.spec.format, 0
        row, end = piece * PIECE, min(records, (piece + 1) * PIECE)
        for output in self.outputs:
            output.begin(piece)
            if not piece:
                output.write(format_.header(source.columns))
        for batch in source.piece(format_, row, end) if row < end else ():
            for rows in _members(batch, row):
                data, dropped = format_.records(rows, first=not row)
                row += len(rows)
                removed += dropped
                for output in self.outputs:
                    output.write(data, len(rows))
            alive(row)
        if row != end:
            raise Stale
        for output in self.outputs:
            if last:
                output.write(format_.footer)
            output.end(last=last)
        return removed

    def complete(self) -> list[File]:
        """Make the files visible, checked against what was written."""
        return [
            written_file(self.spec.format, output.upload.key, output.upload.complete(), output.compress)
            for output in self.outputs
        ]

    def settle(self, waiting: Alive) -> None:
        """Wait for the parts that are on their way: it would be a pity to send them again."""
        for output in self.outputs:
            output.upload.settle(waiting)

    def leave(self) -> None:
        """Stop here: the uploads stay open for who resumes them."""
        for output in self.outputs:
            output.upload.leave()


def _members(batch: list[memoryview], row: int) -> Iterator[list[memoryview]]:
    """The rows in as many parts as there are members of a gzip variant that they belong to."""
    while batch:
        room = MEMBER - row % MEMBER
        yield batch[:room]
        row += len(batch[:room])
        batch = batch[room:]
