"""The built-in data service, which runs on the same engine; and which one the settings choose.

Both keep to one contract, and pass one suite of tests (docs/data-service.md).
"""

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING
from uuid import UUID

from chalicelib.db import Database, statements
from chalicelib.engine import Engine, Failure, Job
from chalicelib.exports.data_service import (
    MAX_PAUSE,
    MIN_PAUSE,
    Export,
    ExportedFile,
    ExportLost,
    FileMismatch,
    NewerFence,
    RemoteDataService,
    Wanted,
)

from . import ExportSubject

if TYPE_CHECKING:
    from chalicelib.pipelines import Context

SQL = statements("chalicelib.pipelines.export")


def data_service(at: "Context") -> "DataService | RemoteDataService":
    """The remote one that the settings name, else the built-in one."""
    settings = at.settings
    if settings.data_service_url is None:
        return DataService(at.db, at.engine)
    token = settings.data_service_token
    return _remote(
        settings.data_service_url, token.get_secret_value() if token else None, settings.data_service_timeout
    )


@cache
def _remote(url: str, token: str | None, timeout: float) -> RemoteDataService:
    """One connection pool a process."""
    return RemoteDataService(url, token, timeout)


class DataService:
    """Exports by key: asking twice finds the same one, and an older fence than the last one seen is refused."""

    def __init__(self, db: Database, engine: Engine):
        self._db = db
        self._engine = engine

    def start(self, wanted: Wanted, *, fence: int, known: bool = False) -> Export:
        """As the contract says. An export that was known and isn't has failed: its key stands for it for ever."""
        subject = ExportSubject(
            key=wanted.key,
            dataset=wanted.dataset,
            definition=wanted.definition,
            source=wanted.source,
            source_revision=wanted.source_revision,
        )
        with self._db.transaction() as tx:
            found = tx.one(SQL.find_export, key=wanted.key, fence=fence)
            if found is None:
                if known:
                    raise ExportLost
                job = self._engine.accept("export", subject, tx=tx).job.id
                found = tx.run(SQL.note_export, key=wanted.key, job=job, fence=fence)[0]
            if found["deleted"]:
                raise ExportLost  # and whatever was accepted just now is rolled back
        if found["fence"] > fence:
            raise NewerFence(found["fence"])
        made_by = self._engine.status(found["job_id"])
        if isinstance(made_by, Job) and made_by.status == "queued":
            self._engine.relay(inline_job=made_by.id)
        return _export(made_by, age=found["age"])

    def look(self, wanted: Wanted) -> Export:
        """As the contract says."""
        return self._look(wanted.key)

    def read(self, key: UUID, name: str, start: int = 0) -> Iterator[bytes]:
        """As the contract says, or StorageAway, StorageRefused."""
        from .steps import storage

        stored = {_name(file["key"]): file["key"] for file in self._look(key).stored}
        if name not in stored:
            raise FileMismatch
        yield from storage().read(stored[name], start=start)

    def delete(self, key: UUID) -> bool:
        """As the contract says."""
        job = self._db.run(SQL.delete_export, key=key)[0]["job_id"]
        return job is None or self._engine.discard(job)

    def _look(self, key: UUID) -> Export:
        found = self._db.one(SQL.get_export, key=key)
        if found is None:
            raise ExportLost
        return _export(self._engine.status(found["job_id"]), age=found["age"])


def _export(found: Job | Failure | None, age: float) -> Export:
    if found is None:
        return Export(failed="export_lost")
    if isinstance(found, Failure):
        return Export(failed=found.code, details=found.details)
    stored, records = found.result.get("files", []), found.progress.records
    return Export(
        done=found.status == "succeeded",
        waiting_for=found.waiting_for.code if found.waiting_for else "export",
        retry_after=min(MAX_PAUSE, max(MIN_PAUSE, age / 10)),
        records=records,
        bytes=found.progress.bytes,
        total=found.progress.total,
        files=[
            ExportedFile(
                _name(file["key"]),
                file["format"],
                file["media_type"],
                file["bytes"],
                file["sha256"],
                records,
                file.get("compress"),
            )
            for file in stored
        ],
        stored=stored,
        unpublished=found.result.get("unpublished", []),
        removed=found.result.get("removed", 0),
    )


def _name(key: str) -> str:
    return key.rpartition("/")[2]
