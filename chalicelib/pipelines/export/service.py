"""The data service as a publication sees it: start an export idempotently, look at it, have it removed.

This is the built-in one, which runs on the same engine.
"""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from chalicelib.db import Database, statements
from chalicelib.engine import Engine, Failure, Job, LeaseLost

from . import ExportSubject

SQL = statements("chalicelib.pipelines.export")

MIN_PAUSE, MAX_PAUSE = 2, 60
"""Seconds until an export is looked at again: a tenth of its age, between these."""


@dataclass(frozen=True)
class Export:
    """Where an export stands; `files` is filled once it is done."""

    done: bool = False
    failed: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    waiting_for: str = "export"
    retry_after: float = 0
    records: int = 0
    bytes: int = 0
    total: int | None = None
    files: list[dict[str, Any]] = field(default_factory=list)
    unpublished: list[str] = field(default_factory=list)
    removed: int = 0


class DataService:
    """Exports by key: asking twice finds the same one, and an older fence than the last one seen is refused."""

    def __init__(self, db: Database, engine: Engine):
        self._db = db
        self._engine = engine

    def start(self, subject: ExportSubject, *, fence: int) -> Export:
        """Start the export that the subject's key stands for, or find it; LeaseLost where a newer fence has asked."""
        with self._db.transaction() as tx:
            known = tx.one(SQL.find_export, key=subject.key, fence=fence)
            if known is None:
                job = self._engine.accept("export", subject, tx=tx).job.id
                known = tx.one(SQL.note_export, key=subject.key, job=job, fence=fence)
                assert known is not None
        if known["fence"] > fence:
            raise LeaseLost
        found = self._engine.status(known["job_id"])
        if isinstance(found, Job) and found.status == "queued":
            self._engine.relay(inline_job=found.id)
        return _export(found, age=known["age"])

    def delete(self, key: UUID) -> bool:
        """Have an export's files removed; False while a running one still has to stop. Again: no effect."""
        known = self._db.one(SQL.get_export, key=key)
        return known is None or self._engine.discard(known["job_id"])


def _export(found: Job | Failure | None, age: float) -> Export:
    if found is None:
        return Export(failed="export_lost")
    if isinstance(found, Failure):
        return Export(failed=found.code, details=found.details)
    return Export(
        done=found.status == "succeeded",
        waiting_for=found.waiting_for.code if found.waiting_for else "export",
        retry_after=min(MAX_PAUSE, max(MIN_PAUSE, age / 10)),
        records=found.progress.records,
        bytes=found.progress.bytes,
        total=found.progress.total,
        files=found.result.get("files", []),
        unpublished=found.result.get("unpublished", []),
        removed=found.result.get("removed", 0),
    )
