"""A load as its owner sees it: an upload begun, rows or an upload accepted, what became of it."""

from datetime import datetime, timedelta
from uuid import UUID

from chalicelib import codes
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.datasets.store import TYPES, StoreMismatch, check_store, store_columns, store_key
from chalicelib.db import Sql, statements
from chalicelib.engine import Engine, Failure, Idempotency, Job, Refusal
from chalicelib.exports.files import Dialect
from chalicelib.security import keyed_hash

from . import LoadDialect, LoadRequest, LoadSubject, Mode, upload_id, upload_key
from .rows import Checked, Records

SQL = statements("chalicelib.pipelines.load")

UPLOAD_LASTS = timedelta(hours=24)
"""How long an upload waits for its load."""

MARGIN = timedelta(minutes=10)
"""Cleanup begins that much later than loads may no longer take it: the two never meet."""


def owner(principal: str) -> bytes:
    """By what the owner of a load is known."""
    return keyed_hash("load-owner", principal)


def begin_upload(
    engine: Engine, dataset: str, principal: str, bytes_: int, sha256: bytes | None = None
) -> tuple[UUID, datetime]:
    """Make an upload of so many bytes; its id, and until when a load may take it. Refusal where none could.

    ``sha256`` is that of its content, if it is known; nothing is kept of it but a keyed hash, in the id.
    """
    # Keyed and each owner's own: the SHA-256 of a small file can be guessed, and two owners' equal files be told.
    content = keyed_hash("upload-content", f"{sha256.hex()} {principal}") if sha256 else None
    upload = upload_id(content)
    with engine.db.transaction() as tx:
        _definition(tx, dataset)
        made = tx.run(
            SQL.add_upload, id=upload, dataset=dataset, owner=owner(principal), bytes=bytes_, lasts=UPLOAD_LASTS
        )[0]
        engine.leave(tx, upload, "upload", {"key": upload_key(upload), "upload": str(upload)}, UPLOAD_LASTS + MARGIN)
    return upload, made["expires_at"]


def accept_load(
    engine: Engine,
    dataset: str,
    principal: str,
    key: Idempotency,
    *,
    mode: Mode,
    dialect: LoadDialect,
    body: bytes = b"",
    as_array: bool = False,
    upload: UUID | None = None,
) -> Job | Failure:
    """Accept a load, and try to wake a worker. Raises Refusal, SubjectBusy, and Unfit for rows that can't be loaded.

    What was asked before under the same key is answered first, whatever the definition says by now.
    """
    subject = {
        "dataset": dataset,
        "owner": owner(principal).hex(),
        "key": keyed_hash("load-key", f"{key.principal.hex()} {key.route} {key.key.hex()}").hex(),
    }

    def accept(tx: Sql) -> Job:
        revision, definition = _definition(tx, dataset)
        if upload is None:
            form = Dialect(**dialect.model_dump())
            found = Records([body], form, as_array=as_array)
            for _ in Checked(found, store_columns(definition), store_key(definition), form, header=found.header):
                pass  # they are read anew by whoever loads them: what is kept is what came
            request = LoadRequest(mode=mode, body=body.decode(), as_array=as_array, dialect=dialect)
        else:
            request = LoadRequest(mode=mode, upload=upload, dialect=dialect)
        job = engine.accept("load", LoadSubject(definition=revision, **subject), request=request, tx=tx).job
        # What the store will be for one that waits in line, the loads before it decide: its worker looks.
        if mode != "replace" and job.waiting_for is None:
            try:
                check_store(tx, dataset, definition)
            except StoreMismatch as mismatch:
                raise Refusal("store_mismatch", mismatch.column, codes.FAILURES["store_mismatch"].remedy) from None
        if upload is not None:
            wanted = {"upload": upload, "dataset": dataset, "owner": owner(principal), "job": job.id}
            if not tx.one(SQL.take_upload, **wanted) or not engine.take_over(tx, upload, job.id):
                raise Refusal("unknown_upload", "upload", codes.PROBLEMS["unknown_upload"].remedy)
        return job

    return engine.once(key, accept)


def _definition(tx: Sql, dataset: str) -> tuple[int, Definition]:
    """The definition that loads go by now; Refusal where there is none. The dataset stays until the end."""
    if registry.is_deleted(tx, dataset):
        raise Refusal("gone", "dataset", f"Dataset '{dataset}' was deleted.")
    found = registry.definition(tx, dataset)
    if found is None:
        raise Refusal("not_found", "dataset", f"Dataset '{dataset}' has no definition yet: `leaseway apply` puts one.")
    definition = Definition.kept(found["body"])
    if not definition.key:
        raise Refusal("takes_no_loads", "key", codes.PROBLEMS["takes_no_loads"].remedy)
    for column in definition.columns:
        if column.type not in TYPES:
            raise Refusal("takes_no_loads", column.name, f"A column of {column.type} can't be loaded.")
    return int(found["revision"]), definition
