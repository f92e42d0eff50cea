"""An export that outlasts an invocation: the source is copied once, the files are written by as many as it takes.

The checkpoint says what is copied and how far the files are; whoever has the job next goes on from there.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any

import psycopg

from chalicelib.db import Database
from chalicelib.engine import Leased, PermanentFailure, Wait
from chalicelib.engine.model import ATTEMPTS
from chalicelib.exports.errors import SourceError, Stale, StorageMismatch, StorageRefused, blaming_source
from chalicelib.exports.formats import Column, FileSpec
from chalicelib.exports.relation import Exported, File, Relation, Source, hang_up, snapshot, variants
from chalicelib.exports.staged import Output, Pieces, Staged, columns_of, copy_records, measured, sealed
from chalicelib.exports.storage import Store
from chalicelib.settings import Settings

from . import ExportSubject
from .staging import STATEMENT_TIMEOUT, OutOfTime, drop_unless_locked, key_of, table_of

SECONDS_PER_VALUE = 2e-6
"""What a value costs in a file, conservatively: 300,000 × 20 in three files take 7 to 9 s into object storage, 0.45 µs
each; a slower network, store or server has four times that."""

OVERHEAD = 3
"""What a record costs by itself in each file, in values."""

TRIES = 3
"""So many invocations may bring an export no further: what they can't do in their time, nobody can."""


PASSING = {"source_unreachable", "source_conflict"}
"""What passes by itself: the job waits and spends no attempt."""


class Copied(Exception):
    """The source was copied instead of being exported as it is."""


class Resumable:
    """An export's place in its checkpoint."""

    def __init__(
        self,
        job: Leased[ExportSubject],
        settings: Settings,
        db: Database,
        store: Store,
        columns: Sequence[Column],
        specs: Sequence[FileSpec],
    ):
        self._job = job
        self._settings = settings
        self._db = db
        self._store = store
        self._columns = columns
        self.specs = specs
        self._state: dict[str, Any] = job.checkpoint or {
            "filled": None,
            "table": None,
            "furthest": [0, 0],
            "tries": 0,
        }
        self._pieces: Pieces | None = None
        self._verified = False
        # The last attempt began without a checkpoint: what it commits was committed before, and gives nothing back.
        self._restores = job.attempts < ATTEMPTS
        self._moved = False

    @property
    def filled(self) -> str | None:
        """The table that an uploaded file was read into, if it is whole."""
        filled: str | None = self._state["filled"]
        return filled

    @filled.setter
    def filled(self, table: str | None) -> None:
        self._state["filled"] = table

    def read_again(self) -> None:
        """Remember that the file's table isn't whole any more."""
        self.filled = None
        self._save()

    @property
    def copied(self) -> bool:
        """Whether there is a copy to go on from."""
        return self._state["table"] is not None

    def fits(self, records: int) -> bool:
        """Whether a direct export of so many records surely ends in this invocation; one that died is never sure."""
        values = records * (len(self._columns) + OVERHEAD) * sum(len(variants(spec)) for spec in self.specs)
        fresh = self._job.attempts == 1 and self._job.checkpoint is None
        return fresh and values * SECONDS_PER_VALUE < self._left

    def beat(self, **progress: int) -> None:
        """Keep the lease, and stop in time: what the last heartbeat before the end would find is handed over."""
        self._job.heartbeat(force=False, **progress)
        if self._left < 0:
            raise OutOfTime

    @property
    def _left(self) -> float:
        # A claim takes at least two heartbeats' time, so there is always one to work in.
        return self._job.seconds_left() - self._settings.heartbeat

    def hand_over(self) -> Wait:
        """Another invocation goes on at once; where three in a row come no further, the source is too large."""
        further = self._note_pieces() > self._state["furthest"]
        first = self._job.checkpoint is None  # a direct export that was estimated wrongly
        self._state["tries"] = 0 if self._moved or further or first else self._state["tries"] + 1
        if self._state["tries"] == TRIES:
            raise PermanentFailure("source_too_large")
        self._save()
        return Wait(0)

    def _note_pieces(self) -> list[int]:
        """Put the file that is being written into the state; how far the export is: steps, bytes."""
        state = self._state
        if not self.copied:
            return [0, 0]
        if self._pieces:
            state["current"] = self._pieces.state()
        size = sum(file["bytes"] for file in state["files"]) + (self._pieces.bytes if self._pieces else 0)
        return [1 + state["specs"], size]

    def _save(self) -> None:
        """Remember. Only what was never reached before is progress: a file that is refused would go on for ever."""
        reached = self._note_pieces()
        further = reached > self._state["furthest"]
        self._moved |= further
        self._state["furthest"] = max(reached, self._state["furthest"])
        self._job.save(self._state, progress=further and self._restores)

    # The copy

    def counted(self, source: Source, records: int) -> None:
        """Copy the source where the files may outlast this invocation; Copied, then."""
        if self.fits(records):
            return
        self.copy(source, records)
        raise Copied

    def copy(self, source: Source, records: int) -> None:
        """Copy the source's snapshot, in one transaction that the claim guards."""
        most = self._settings.copy_records
        if records > most:
            raise PermanentFailure("source_too_large", records=records, maximum=most)
        table = table_of(self._job, "_copy")
        self._job.note("staging", {"table": table})
        with self._own(hold=True) as connection:
            copied = copy_records(
                source, connection, f"staging.{table}", len(self._columns), alive=self._within(records)
            )
            if copied != records:  # the query's own doing: it gives other records each time it runs
                raise SourceError("source_changed", relation=source.name, records=copied)
        self._state |= {
            "filled": None,
            "table": table,
            "records": records,
            "digest": None,
            "unpublished": source.unpublished,
            "files": [],
            "specs": 0,
            "removed": 0,
            "current": None,
        }
        self._save()

    def _seal(self, table: str) -> None:
        """Index and measure the copy, whoever made it, and remember its hash."""
        with self._own() as connection:
            self._state["digest"] = sealed(connection, table, self.beat).digest
        self._verified = True
        self._save()

    @contextmanager
    def _own(self, *, hold: bool = False) -> Iterator[psycopg.Connection[Any]]:
        """A transaction of Leaseway's own database; the claim guards it where it is held at its end."""
        own = Database(self._settings.dsn)  # the job's own connection keeps its lease meanwhile
        try:
            with own.transaction() as tx:
                # The functions' own time-out is made for short statements.
                tx.run(f"set local statement_timeout = '{STATEMENT_TIMEOUT}s'")
                try:
                    yield tx.connection
                except BaseException:
                    hang_up(tx.connection)
                    raise
                if hold:
                    self._job.hold(tx)
        finally:
            own.close()

    def _within(self, records: int) -> Callable[[int], None]:
        def alive(size: int) -> None:
            if size > self._settings.copy_bytes:
                raise PermanentFailure("source_too_large", bytes=size, maximum=self._settings.copy_bytes)
            self.beat(total=records)

        return alive

    # The files

    def write(self) -> tuple[list[int], Exported]:
        """Write the files that are missing, from the copy; the ledger's rows to keep, and all files."""
        state = self._state
        try:
            if state["specs"] < len(self.specs):
                with self._copy() as copy:
                    for spec in self.specs[state["specs"] :]:
                        self._write_file(copy, spec)
            keep = [self._job.note("s3_object", {"key": file["key"]}) for file in state["files"]]
        except OutOfTime:
            if self._pieces:
                with suppress(OutOfTime):
                    self._pieces.settle(self._last_moments)
            raise
        except Stale:
            self._forget()
            raise
        except (StorageRefused, StorageMismatch):
            # Another part in a part's place, an upload that somebody aborted: by a new claim, under a new key, anew.
            self._pieces = state["current"] = None
            self._save()
            raise
        finally:
            if self._pieces:
                self._pieces.leave()
        drop_unless_locked(self._db, state["table"])
        files = [File(**file) for file in state["files"]]
        return keep, Exported(state["records"], files, state["removed"], state["unpublished"])

    def _last_moments(self) -> None:
        self._job.heartbeat()
        if self._left < -self._settings.heartbeat / 2:
            raise OutOfTime

    @contextmanager
    def _copy(self) -> Iterator[Source]:
        """The copy, once it is sure that it is what it was."""
        table = f"staging.{self._state['table']}"
        relation = Relation(
            connection_dsn=self._settings.dsn,
            relation=table,
            query=None,
            columns=columns_of(self._columns),
            statement_timeout=STATEMENT_TIMEOUT,
        )
        try:
            if self._state["digest"] is None:
                with blaming_source(table):
                    self._seal(table)
            with snapshot(relation) as copy:
                if not self._verified:
                    with blaming_source(table):
                        found = measured(copy.connection, table, self.beat)
                    if found != Staged(self._state["records"], self._state["digest"]):
                        raise Stale
                yield copy
        except SourceError as error:
            if error.code == "record_too_large":  # XML's escapes may make it so
                error.details["relation"] = self._job.subject.source  # nobody knows the copy's name
                raise
            if error.code in PASSING:
                raise
            raise Stale from error

    def _write_file(self, copy: Source, spec: FileSpec) -> None:
        state = self._state
        if state["current"]:
            pieces = Pieces.resumed(spec, state["current"], self._store, self.beat)
        else:
            pieces = Pieces(spec, [self._opened(*variant) for variant in variants(spec)])
        self._pieces = pieces

        def alive(row: int) -> None:
            files = len(self.specs)
            self.beat(records=(state["specs"] * state["records"] + row) // files, total=state["records"])
            if pieces.due:
                self._save()

        removed = pieces.write(copy, state["records"], alive)
        self._save()
        files = pieces.complete()
        self._pieces = None
        state["files"] += [asdict(file) for file in files]
        state |= {"specs": state["specs"] + 1, "removed": state["removed"] + removed, "current": None}
        self._save()

    def _opened(self, suffix: str, media_type: str, compress: str | None) -> Output:
        key = key_of(self._job, suffix)
        self._job.note("s3_object", {"key": key})
        return Output(compress, self._store.open_upload(key, media_type, waiting=self.beat))

    def _forget(self) -> None:
        """Begin anew, with another copy."""
        drop_unless_locked(self._db, self._state["table"])
        self._pieces = None
        self._state = {
            "filled": None,
            "table": None,
            "furthest": self._state["furthest"],
            "tries": self._state["tries"],
        }
        self._save()
