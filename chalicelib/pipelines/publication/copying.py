"""A publication and its data service: what it asks for, what the answers mean, and files copied into our storage."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any
from uuid import UUID

from chalicelib.datasets.definition import Definition
from chalicelib.engine import Advance, Leased, LeaseLost, Outage, PermanentFailure, TransientFailure, Wait
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
from chalicelib.exports.errors import StorageAway, StorageRefused
from chalicelib.pipelines import Context
from chalicelib.pipelines.export.service import DataService
from chalicelib.pipelines.export.specs import options, specs
from chalicelib.pipelines.export.steps import failing, storage

from . import PublicationSubject

ROOM = 30
"""Seconds of an invocation without which no file is begun, unless a whole invocation has no more."""


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
        job.save({"service": service.url})
    return export


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
        job.save({})  # nothing of it is worth keeping: the next attempt starts another one
        raise TransientFailure("export_lost") from error
    except NewerFence as error:
        # A newer claim of this job has asked; unless the database gives no such claims yet (invariant 4).
        if error.fence > at.engine.fence(at.db):
            raise PermanentFailure("fence_regressed", fence=job.claim_id, found=error.fence) from error
        raise LeaseLost from error


def copied(job: Leased[Any], service: RemoteDataService, asked: Wanted, export: Export) -> Advance | Wait:
    """The files in our object storage, each compared with what the data service lists, on the way and after.

    A file that is there is in the checkpoint, and isn't asked for again; the first list is, too, and another one later
    means that the files are of two exports, so they are all copied anew.
    """
    before = job.checkpoint or {}
    listed = [asdict(file) for file in export.files]
    done: dict[str, dict[str, Any]] = before.get("done", {})
    handed_over = before.get("handed_over", False)
    if before.get("files", listed) != listed:
        job.save({})
        raise FileMismatch
    for file in export.files:
        if file.name in done:
            continue
        left = job.seconds_left()
        if done and left < ROOM and not handed_over:
            job.save({"service": service.url, "files": listed, "done": done, "handed_over": True})
            return Wait(seconds=left, waiting_for="export")  # else this invocation would have it at once again
        done = {**done, file.name: _copy(job, service, asked.key, file)}
        job.save({"service": service.url, "files": listed, "done": done})
        handed_over = False
    if service.look(asked).files != export.files:
        job.save({})
        raise FileMismatch
    return Advance(
        keep=[done[file.name]["row"] for file in export.files],
        files=[{name: value for name, value in done[file.name].items() if name != "row"} for file in export.files],
        records=export.records,
        unpublished=export.unpublished,
        removed=export.removed,
    )


def _copy(job: Leased[Any], service: RemoteDataService, export: UUID, file: ExportedFile) -> dict[str, Any]:
    """One file, in the ledger before it exists; its key names job and claim."""
    key = f"exports/{job.id}/{job.claim_id}/{file.name}"
    row = job.note("s3_object", {"key": key})
    with failing():
        upload = storage().open_upload(key, file.compress or file.media_type, waiting=job.heartbeat)
        try:
            read, taken = hashlib.sha256(), 0
            for piece in service.read(export, file.name):
                read.update(piece)
                taken += len(piece)
                if taken > file.bytes:
                    raise FileMismatch
                upload.write(piece)
                job.heartbeat()
            if (taken, read.hexdigest()) != (file.bytes, file.sha256):
                raise FileMismatch
            stored = upload.complete()
        except BaseException:
            with suppress(StorageAway, StorageRefused):
                upload.abort()
            raise
    return {
        "name": file.name,
        "format": file.format,
        "media_type": file.media_type,
        **({"compress": file.compress} if file.compress else {}),
        "key": key,
        "bytes": stored.bytes,
        "sha256": stored.sha256,
        "etag": stored.etag,
        "row": row,
    }


def _host(service: DataService | RemoteDataService) -> dict[str, str]:
    return {"host": service.host} if isinstance(service, RemoteDataService) else {}
