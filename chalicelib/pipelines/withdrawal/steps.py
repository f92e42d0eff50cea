"""The one step of a withdrawal: out of the catalogue first, then the files, then it is finished."""

from psycopg import Rollback

from chalicelib.catalog.entry import relink
from chalicelib.datasets import registry
from chalicelib.db import Row, Sql
from chalicelib.engine import Finished, Leased, Outage, TransientFailure, Wait
from chalicelib.exports.errors import StorageAway, StorageRefused
from chalicelib.pipelines import context
from chalicelib.pipelines.entries import replace_entry
from chalicelib.pipelines.export.service import DataService
from chalicelib.pipelines.export.steps import storage

from . import WithdrawalSubject


def withdraw(job: Leased[WithdrawalSubject]) -> Finished | Wait:
    """Take the version out of the catalogue, delete its files, finish.

    From the first commit on nobody gets an address of a file any more, so it doesn't matter how long the second part
    takes. A worker that comes later skips what is done; all of it may be done twice.
    """
    version = registry.version(context().db, job.subject.dataset, job.subject.version)
    assert version is not None  # versions stay for ever
    graph = job.note("graph", {"graph": _dataset_iri(job), "dataset": job.subject.dataset})
    if version["withdrawn_by"] != job.id and not _take_out(job):
        return Wait(seconds=1)
    _delete_files(job, version)
    with job.transaction() as tx:
        job.finish(tx, keep=[graph], version=job.subject.version)  # the number keeps the job for ever: it is the record
    return Finished()


def _take_out(job: Leased[WithdrawalSubject]) -> bool:
    """Mark the version, mend the link to it, put the entry that is current now into the catalogue: all or nothing.

    False, and nothing, where a newer fence stands in the catalogue: come back with one newer still.
    """
    at, dataset, number = context(), job.subject.dataset, job.subject.version
    job.require(at.settings.store_timeout * 2)  # the replace and the reading back
    with job.transaction() as tx:
        newest = registry.lock_dataset(tx, dataset)["last_version"]
        job.hold(tx)
        current = registry.withdraw_version(tx, dataset, number, job.id)
        standing = [row["number"] for row in registry.versions(tx, dataset) if not row["withdrawn_at"]]
        newer = [each for each in standing if each > number]
        if newer:  # each version links to the one before it, so the next one links here, and no other
            older = max((each for each in standing if each < number), default=None)
            entry, _ = _entry(tx, dataset, min(newer))
            mended = relink(entry, _dataset_iri(job), number, older)
            registry.correct_version(tx, dataset, min(newer), mended.documents, mended.triples)
        if not replace_entry(job, tx, _dataset_iri(job), *_entry(tx, dataset, current), newest):
            raise Rollback
        return True
    return False


def _entry(tx: Sql, dataset: str, number: int | None) -> tuple[bytes, int]:
    """A version's stored entry and its number of triples; none without a version."""
    version = None if number is None else registry.version(tx, dataset, number)
    return (version["documents"]["nt"].encode("ascii"), version["triples"]) if version else (b"", 0)


def _delete_files(job: Leased[WithdrawalSubject], version: Row) -> None:
    """Have the data service forget the export, so that the files go whatever becomes of us; then delete them now.

    And see them gone: a bucket may keep what it was told to delete.
    """
    at = context()
    DataService(at.db, at.engine).delete(version["job_id"])
    if any(str(version["job_id"]) in file["key"] for file in version["files"]):  # copied from a remote data service
        at.engine.discard(version["job_id"])
    for file in version["files"]:
        job.heartbeat()
        try:
            storage().delete(file["key"])
            left = storage().head(file["key"])
        except StorageAway as error:
            raise Outage("storage_unreachable", **error.details) from error
        except StorageRefused as error:
            raise TransientFailure("storage_refused", **error.details) from error
        if left is not None:
            raise TransientFailure("file_not_deleted")


def _dataset_iri(job: Leased[WithdrawalSubject]) -> str:
    return f"{context().settings.public_url}/datasets/{job.subject.dataset}"
