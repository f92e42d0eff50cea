"""A publication and its data service: what it asks for, what the answers mean, and files copied into our storage."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any
from uuid import UUID

from chalicelib.datasets.definition import Definition
from chalicelib.engine import Advance, Leased, LeaseLost, Outage, PermanentFailure, TransientFailure, Wait
from chalicelib.engine.model import ATTEMPTS
from chalicelib.exports.data_service import (
    Export,
    ExportedFile,
    ExportLost,
    FileMismatch,
    NewerFence,
    RemoteDataService,
    ServiceAway,
    ServiceRefused,
    Wanted,
    WantedFile,
)
from chalicelib.exports.errors import StorageAway, StorageMismatch, StorageRefused
from chalicelib.exports.staged import SAVED
from chalicelib.exports.storage import Part, Upload
from chalicelib.pipelines import Context
from chalicelib.pipelines.export.service import DataService
from chalicelib.pipelines.export.specs import options, specs
from chalicelib.pipelines.export.staging import OutOfTime
from chalicelib.pipelines.export.steps import failing, storage

from . import PublicationSubject

TRIES = 3
"""So many invocations may bring a file no further: what they can't do in their time, nobody can."""


def wanted(key: UUID, subject: PublicationSubject, definition: Definition) -> Wanted:
    """All that a data service is told of a publication."""
    files = []
    for spec in specs(definition):
        name, of = f"{subject.dataset}.{spec.format.suffix}", (spec.format.name, spec.format.media_type)
        said = options(spec.format.name, definition)
        files.append(WantedFile(name, *of, options=said))
        if spec.gzip:
            files.append(WantedFile(f"{name}.gz", *of, "application/gzip", said))
    return Wanted(
        key=key,
        dataset=subject.dataset,
        definition=subject.definition,
        source=subject.source,
        source_revision=subject.source_revision,
        columns=[
            {"name": column.name, "type": column.type, "source": column.source_name or column.name}
            | ({"srid": column.srid} if column.srid else {})
            for column in definition.columns
        ],
        files=files,
    )


def begin(job: Leased[Any], service: DataService | RemoteDataService, asked: Wanted) -> Export:
    """Start the export, or find it; one that a remote service is known to have begun is never silently begun anew."""
    if isinstance(service, DataService):
        return service.start(asked, fence=job.claim_id)
    known = (job.checkpoint or {}).get("service") == service.url
    export = service.start(asked, fence=job.claim_id, known=known)
    if not known:
        _forget(job, service=service.url)
    return export


def _forget(job: Leased[Any], **known: str) -> None:
    """Begin anew; how far it ever was is kept, for only what is further gives attempts back."""
    job.save({"furthest": (job.checkpoint or {}).get("furthest", 0), **known}, progress=False)


@contextmanager
def asking(job: Leased[Any], at: Context, service: DataService | RemoteDataService) -> Iterator[None]:
    """What a data service did becomes the job's wait, retry or failure."""
    try:
        yield
    except ServiceAway as error:
        raise Outage("data_service_unreachable", **error.details) from error
    except ServiceRefused as error:
        raise TransientFailure("data_service_refused", **error.details) from error
    except FileMismatch as error:
        raise TransientFailure("file_mismatch", **(_host(service))) from error
    except ExportLost as error:
        _forget(job)  # nothing of it is worth keeping: the next attempt starts another one
        raise TransientFailure("export_lost") from error
    except NewerFence as error:
        # A newer claim of this job has asked; unless the database gives no such claims yet (invariant 4).
        if error.fence > at.engine.fence(at.db):
            raise PermanentFailure("fence_regressed", fence=job.claim_id, found=error.fence) from error
        raise LeaseLost from error


def copied(job: Leased[Any], at: Context, service: RemoteDataService, asked: Wanted, export: Export) -> Advance | Wait:
    """The files in our object storage, each compared with what the data service lists.

    By as many invocations as it takes: the checkpoint names the files that are there and the parts of the one that is
    on its way. The first list is in it, too; another one later means that the files are of two exports, so they are
    all copied anew.
    """
    listed = [asdict(file) for file in export.files]
    if (job.checkpoint or {}).get("files", listed) != listed:
        _forget(job)
        raise FileMismatch
    copying = Copying(job, at.settings.heartbeat, service, asked.key, listed)
    try:
        with failing():
            for file in export.files:
                copying.copy(file)
    except OutOfTime:
        return copying.hand_over()
    if service.look(asked).files != export.files:
        _forget(job)
        raise FileMismatch
    return Advance(
        keep=[job.note("s3_object", {"key": file["key"]}) for file in copying.done],
        files=copying.done,
        records=export.records,
        unpublished=export.unpublished,
        removed=export.removed,
    )


class Copying:
    """How far an export's files are, in the checkpoint of the publication."""

    def __init__(
        self,
        job: Leased[Any],
        heartbeat: float,
        service: RemoteDataService,
        export: UUID,
        listed: list[dict[str, Any]],
    ):
        self._job = job
        self._service = service
        self._export = export
        self._heartbeat = heartbeat
        begun: dict[str, Any] = {
            "service": service.url,
            "files": listed,
            "done": {},
            "current": None,
            "furthest": 0,
            "tries": 0,
        }
        self._state = begun | (job.checkpoint or {})
        # The last attempt began without a checkpoint: what it commits was committed before, and gives nothing back.
        self._restores = job.attempts < ATTEMPTS
        self._upload: Upload | None = None
        self._saved = 0

    @property
    def done(self) -> list[dict[str, Any]]:
        """The files that are there, as they were listed."""
        return [self._state["done"][file["name"]] for file in self._state["files"]]

    def copy(self, file: ExportedFile) -> None:
        """Have one file, unless it is there; from the last part that the store has taken.

        Raises:
            OutOfTime: another invocation goes on.
            FileMismatch: it isn't what its list says.
        """
        if file.name in self._state["done"]:
            return
        self._upload = upload = self._opened(file)
        try:
            self._fill(upload, file)
            self._save()  # what follows may not fit into this invocation
            stored = upload.complete()
            if stored.sha256 != file.sha256:
                raise FileMismatch
        except (FileMismatch, StorageRefused, StorageMismatch):
            # Other bytes, another part in a part's place, an upload that somebody aborted: anew, under another key.
            self._upload = self._state["current"] = None
            self._save()
            raise
        except (OutOfTime, ServiceAway, StorageAway):
            with suppress(OutOfTime, StorageAway, StorageRefused):
                upload.settle(self._last_moments)
            self._save(progress=True)
            raise
        finally:
            upload.leave()
        self._upload = self._state["current"] = None
        self._state["done"] |= {
            file.name: {
                "name": file.name,
                "format": file.format,
                "media_type": file.media_type,
                **({"compress": file.compress} if file.compress else {}),
                "key": upload.key,
                "bytes": stored.bytes,
                "sha256": stored.sha256,
                "etag": stored.etag,
            }
        }
        self._save()

    def hand_over(self) -> Wait:
        """Another invocation goes on at once; where three in a row come no further, none will."""
        self._state["tries"] += 1
        if self._state["tries"] > TRIES:
            raise PermanentFailure("source_too_large", host=self._service.host)
        self._save()
        return Wait(0)

    def _opened(self, file: ExportedFile) -> Upload:
        """The file's upload, in the ledger before it exists; the key names job and the claim that began it."""
        begun = self._state["current"]
        key = begun["key"] if begun else f"exports/{self._job.id}/{self._job.claim_id}/{file.name}"
        self._job.note("s3_object", {"key": key})
        if begun:
            parts = [Part(*part) for part in begun["parts"]]
            self._saved = len(parts)
            return storage().resume_upload(key, begun["upload"], parts, self._beat)
        self._saved = 0
        return storage().open_upload(key, file.compress or file.media_type, waiting=self._beat)

    def _fill(self, upload: Upload, file: ExportedFile) -> None:
        taken = sum(part.bytes for part in upload.parts)
        if taken < file.bytes or not taken:
            for piece in self._service.read(self._export, file.name, taken):
                taken += len(piece)
                if taken > file.bytes:
                    raise FileMismatch
                upload.write(piece)
                self._beat()
                if len(upload.parts) > self._saved + self._saved // SAVED:
                    self._save(progress=True)
        if taken != file.bytes:
            raise FileMismatch
        upload.finish()

    def _beat(self) -> None:
        """Keep the lease, and stop in time: what the last heartbeat before the end would find is handed over."""
        self._job.heartbeat()
        if self._job.seconds_left() < self._heartbeat:
            raise OutOfTime

    def _last_moments(self) -> None:
        self._job.heartbeat()
        if self._job.seconds_left() < self._heartbeat / 2:
            raise OutOfTime

    def _save(self, *, progress: bool = False) -> None:
        """Remember. Only parts that were never reached before give the attempts back, and the tries."""
        state, upload = self._state, self._upload
        if upload:
            parts = [[part.etag, part.sha256, part.bytes] for part in upload.parts]
            state["current"] = {"key": upload.key, "upload": upload.id, "parts": parts}
            self._saved = len(parts)
        reached = sum(file["bytes"] for file in state["done"].values())
        reached += sum(size for *_, size in state["current"]["parts"]) if state["current"] else 0
        further = reached > state["furthest"]
        if further:
            state |= {"furthest": reached, "tries": 0}
        self._job.save(state, progress=progress and further and self._restores)


def _host(service: DataService | RemoteDataService) -> dict[str, str]:
    return {"host": service.host} if isinstance(service, RemoteDataService) else {}
