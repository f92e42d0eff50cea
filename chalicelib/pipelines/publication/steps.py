"""The two steps of a publication."""

from typing import Any

from chalicelib.catalog.check import check
from chalicelib.catalog.describing import conforms_to, name_of
from chalicelib.catalog.entry import Facts, FileFacts, render
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Database, Row, statements
from chalicelib.engine import (
    Advance,
    Finished,
    Leased,
    Outage,
    PermanentFailure,
    TransientFailure,
    Wait,
)
from chalicelib.exports.data_service import RemoteDataService
from chalicelib.exports.errors import StorageAway, StorageRefused
from chalicelib.pipelines import context
from chalicelib.pipelines.entries import replace_entry
from chalicelib.pipelines.export.service import data_service
from chalicelib.pipelines.export.steps import storage
from chalicelib.settings import Settings

from . import PublicationSubject
from .copying import asking, begin, copied, wanted

SQL = statements("chalicelib.pipelines.publication")


def get_data(job: Leased[PublicationSubject]) -> Advance | Wait:
    """Have the data service export the dataset; come back when the files are there.

    Starting twice with the same key finds the same export, so a crash in here costs nothing. Files that a remote one
    made are copied into our object storage; its own are removed when this job has ended.
    """
    at = context()
    asked = wanted(job.id, job.subject, _definition(at.db, job.subject))
    service = data_service(at)
    made_by = {"service": service.url} if isinstance(service, RemoteDataService) else {}
    kept = job.note("export", {"key": str(job.id), **made_by})
    with asking(job, at, service):
        export = begin(job, service, asked)
        job.heartbeat(force=True, records=export.records, bytes=export.bytes, total=export.total or 0)
        if export.failed:
            raise PermanentFailure(export.failed, **export.details)
        if not export.done:
            return Wait(seconds=export.retry_after, waiting_for=export.waiting_for)
        _refuse_an_empty_surprise(at.db, job.subject, export.records)
        if isinstance(service, RemoteDataService):
            return copied(job, at, service, asked, export)
    return Advance(
        keep=[kept],
        files=export.stored,
        records=export.records,
        unpublished=export.unpublished,
        removed=export.removed,
    )


def persist_data(job: Leased[PublicationSubject]) -> Finished | Wait:
    """Render the metadata, check it, put it in the catalogue, give the version its number, finish.

    Everything from the replace on happens in one short transaction that holds the dataset's row (invariant 13).
    """
    at = context()
    dataset = job.subject.dataset
    definition = _definition(at.db, job.subject)
    _see_files(job)
    facts = _facts(at.db, at.settings, definition, job)
    rendered = render(definition, facts)
    report = check(rendered.ntriples, facts.dataset_iri)
    if not report.conforms:
        raise PermanentFailure("not_conformant", violations=report.violations, rules=report.broken)

    graph = job.note("graph", {"graph": facts.dataset_iri, "dataset": dataset})
    job.require(at.settings.store_timeout * 2)  # the replace and the reading back
    with job.transaction() as tx:
        locked = registry.lock_dataset(tx, dataset)
        job.hold(tx)
        if locked["last_version"] + 1 != facts.version:
            return Wait(seconds=1)  # a withdrawal or a restore moved the number meanwhile: render anew
        if not replace_entry(job, tx, facts.dataset_iri, rendered.ntriples, rendered.triples, facts.version):
            return Wait(seconds=1)
        registry.add_version(
            tx,
            dataset=dataset,
            number=facts.version,
            job=job.id,
            fence=job.claim_id,
            definition=job.subject.definition,
            source=job.subject.source,
            source_revision=job.subject.source_revision,
            issued_at=facts.issued,
            records=facts.records,
            files=job.result["files"],
            documents=rendered.documents,
            # Characters that XML can't hold, taken out of its file (docs/exports.md).
            report=report.as_json() | {"characters_removed": job.result.get("removed", 0)},
            triples=rendered.triples,
        )
        job.finish(tx, keep=[graph], version=facts.version)
    return Finished()


def _refuse_an_empty_surprise(db: Database, subject: PublicationSubject, records: int) -> None:
    """A truncated table or a load that broke off is no new version, unless somebody says that it is."""
    if subject.accept_drop:
        return
    published = _of_dataset(db, subject.dataset)["current_records"]
    minimum = _definition(db, subject).fewest(published)
    if records < minimum:
        raise PermanentFailure("too_few_records", records=records, minimum=minimum)


def _see_files(job: Leased[PublicationSubject]) -> None:
    """See that the files are there: to a restored database this step may be one whose files were deleted since."""
    for file in job.result["files"]:
        try:
            found = storage().head(file["key"])
        except StorageAway as error:
            raise Outage("storage_unreachable", **error.details) from error
        except StorageRefused as error:
            raise TransientFailure("storage_refused", **error.details) from error
        if found is None or found.bytes != file["bytes"]:
            raise PermanentFailure("export_lost")


def _definition(db: Database, subject: PublicationSubject) -> Definition:
    found = registry.definition(db, subject.dataset, subject.definition)
    assert found is not None  # a foreign key holds it
    return Definition.kept(found["body"])


def _facts(db: Database, settings: Settings, definition: Definition, job: Leased[Any]) -> Facts:
    """The version's number and what has been measured of it."""
    at = _of_dataset(db, job.subject.dataset)
    number = at["last_version"] + 1
    base = f"{settings.public_url}/datasets/{job.subject.dataset}"
    files = [
        FileFacts(
            format=file["format"],
            media_type=file["media_type"],
            bytes=file["bytes"],
            sha256=file["sha256"],
            url=f"{base}/versions/{number}/files/{name_of(file, job.subject.dataset)}",
            access_url=f"{base}/files/{name_of(file, job.subject.dataset)}",
            compress=file.get("compress"),
            conforms_to=conforms_to(file, job.subject.dataset, f"{base}/versions/{number}/files"),
        )
        for file in job.result["files"]
    ]
    return Facts(
        dataset_id=job.subject.dataset,
        version=number,
        issued=at["now"],
        first_issued=at["first_issued"] or at["now"],
        modified=at["now"],
        files=files,
        records=job.result["records"],
        previous_version=at["current_version"],
        columns=len(definition.columns),
        base_url=settings.public_url,
    )


def _of_dataset(db: Database, dataset: str) -> Row:
    found = db.one(SQL.facts_of_dataset, dataset=dataset)
    assert found is not None  # a foreign key holds it
    return found
