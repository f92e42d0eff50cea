"""LocalStack's own S3 provider on durable contents, with its changes recorded before each answer.

S3_DURABLE_DIR     the folder of this LocalStack's S3 data (required; one LocalStack at a time)
S3_DURABLE_FSYNC   1: what was answered survives a power failure too, not only a kill
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from localstack.aws.skeleton import create_dispatch_table
from localstack.services.plugins import Service
from localstack.services.s3.provider import S3Provider

from leaseway_durable_s3.contents import WRITTEN, Written
from leaseway_durable_s3.records import Records

Handler = Callable[[Any, Any], Any]

READS = ("Get", "Head", "List")
# Operations that open a content for reading, which another request may just have replaced.
OPENS_CONTENT = ("GetObject", "CopyObject", "UploadPartCopy", "CompleteMultipartUpload")


class DurableS3Provider(S3Provider):
    """LocalStack's provider, which closes the records when it stops."""

    def __init__(self, records: Records) -> None:
        super().__init__(records.contents)
        self.records = records

    def on_before_stop(self) -> None:
        """Close the records; requests that come later fail unanswered."""
        super().on_before_stop()
        self.records.close()


def create_service() -> Service:
    """Load the folder and return the service.

    Raises:
        RuntimeError: the folder isn't named or can't be used; the message says why.
    """
    if not (folder := os.environ.get("S3_DURABLE_DIR")):
        raise RuntimeError("S3_DURABLE_DIR isn't set: it must name the folder for S3's data.")
    records = Records(Path(folder).absolute())
    records.load()

    def dispatch_table(provider: Any) -> Any:
        return {name: _durable(name, handler, records) for name, handler in create_dispatch_table(provider).items()}

    return Service.for_provider(DurableS3Provider(records), dispatch_table_factory=dispatch_table)


def _durable(name: str, handler: Handler, records: Records) -> Handler:
    if name in OPENS_CONTENT:
        handler = _again_if_content_gone(handler)
    return handler if name.startswith(READS) else _recorded(name, handler, records)


def _recorded(name: str, handler: Handler, records: Records) -> Handler:
    def call(context: Any, request: Any) -> Any:
        token = WRITTEN.set(written := Written())
        response = None
        try:
            response = handler(context, request)
            return response
        finally:  # after an error too: it may have come half-way
            WRITTEN.reset(token)
            keys: dict[str, set[str]] = {key: set() for key in written.keys}  # a form names its key nowhere else
            for item in [request, *((request.get("Delete") or {}).get("Objects") or ())]:
                if key := item.get("Key"):
                    keys.setdefault(key, set()).update({item.get("VersionId")} - {None})
            records.save(
                request.get("Bucket"),
                deleted=name == "DeleteBucket",
                keys=keys,
                upload=request.get("UploadId") or (response or {}).get("UploadId"),
                part=str(request.get("PartNumber")),
                written=written.contents,
            )

    return call


def _again_if_content_gone(handler: Handler) -> Handler:
    def call(context: Any, request: Any) -> Any:
        for _ in range(3):
            try:
                return handler(context, request)
            except FileNotFoundError:
                pass
        return handler(context, request)

    return call
