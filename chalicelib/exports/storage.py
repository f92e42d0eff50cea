"""Object storage: files streamed in by multipart upload, memory flat, visible only when whole and checked."""

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import StorageAway, StorageMismatch, StorageRefused

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import CompletedPartTypeDef

    from chalicelib.settings import Settings

PART = 8 * 1024 * 1024
"""Bytes of a part: two are in memory, the one that fills and the one that is on its way."""


@dataclass(frozen=True)
class Stored:
    """A whole file as it was written: size, SHA-256 (hexadecimal) and, in object storage, its ETag."""

    bytes: int
    sha256: str
    etag: str


@dataclass(frozen=True)
class Part:
    """A part that the store has taken: its ETag, the SHA-256 that the store checked (base64), its bytes."""

    etag: str
    sha256: str
    bytes: int


@dataclass(frozen=True)
class Found:
    """What the store itself says of an object; ``checksum`` is the one over its parts' SHA-256, if it keeps one."""

    bytes: int
    etag: str
    checksum: str | None


class Store:
    """One bucket. ``client`` and ``signer`` make a client at first use; the signer's endpoint is what readers reach."""

    def __init__(self, bucket: str, client: "Callable[[], S3Client]", signer: "Callable[[], S3Client] | None" = None):
        self.bucket = bucket
        self._client = cache(client)
        self._signer = cache(signer) if signer else self._client

    @classmethod
    def of(cls, settings: "Settings") -> "Store":
        """The bucket that the settings name, with addresses of its files below FILES_URL."""
        secret = settings.files_secret_access_key
        key = secret.get_secret_value() if secret else None
        return cls(settings.bucket, client, lambda: client(settings.files_base, settings.files_access_key_id, key))

    def open_upload(self, key: str, content_type: str, waiting: Callable[[], None] = lambda: None) -> "Upload":
        """Begin an upload; nothing is visible under the key until it is complete.

        ``waiting`` is called every second while the store lets us wait, so that a lease outlasts a store that hangs.
        """
        with _reaching():
            opened = self._client().create_multipart_upload(
                Bucket=self.bucket, Key=key, ContentType=content_type, ChecksumAlgorithm="SHA256"
            )
            return Upload(self, key, opened["UploadId"], waiting)

    def resume_upload(
        self, key: str, upload_id: str, parts: Sequence[Part], waiting: Callable[[], None] = lambda: None
    ) -> "Upload":
        """Go on with an upload after these parts; whatever follows them is written anew."""
        return Upload(self, key, upload_id, waiting, parts)

    def head(self, key: str) -> Found | None:
        """What the store holds under a key, or None."""
        try:
            with _reaching():
                head = self._client().head_object(Bucket=self.bucket, Key=key, ChecksumMode="ENABLED")
                return Found(head["ContentLength"], head["ETag"], head.get("ChecksumSHA256"))
        except StorageRefused as refused:
            if refused.details.get("status") == 404:
                return None
            raise

    def delete(self, key: str) -> None:
        """Delete an object; one that isn't there is fine."""
        with _reaching():
            self._client().delete_object(Bucket=self.bucket, Key=key)

    def abort(self, key: str, upload_id: str) -> None:
        """Abort an upload; one that was aborted or completed is fine."""
        try:
            with _reaching():
                self._client().abort_multipart_upload(Bucket=self.bucket, Key=key, UploadId=upload_id)
        except StorageRefused as refused:
            if refused.details.get("status") != 404:
                raise

    def abort_uploads(self, key: str) -> None:
        """Abort every upload that is open under a key, also one whose id nobody came to know."""
        with _reaching():
            pages = list(
                self._client().get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket, Prefix=key)
            )
        for upload in (upload for page in pages for upload in page.get("Uploads", [])):
            if upload["Key"] == key:
                self.abort(key, upload["UploadId"])

    def keys(self) -> tuple[list[str], list[str]]:
        """The keys of all objects, and those of all open uploads."""
        with _reaching():
            objects = self._client().get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
            uploads = self._client().get_paginator("list_multipart_uploads").paginate(Bucket=self.bucket)
            return (
                [found["Key"] for page in objects for found in page.get("Contents", [])],
                [found["Key"] for page in uploads for found in page.get("Uploads", [])],
            )

    def presign(self, key: str, filename: str, content_type: str, seconds: int) -> str:
        """An address that gives the object to whoever has it, by GET, for a while; made without asking the store."""
        return self._signer().generate_presigned_url(
            "get_object",
            Params={
                "Bucket": self.bucket,
                "Key": key,
                "ResponseContentDisposition": f'attachment; filename="{filename}"',
                "ResponseContentType": content_type,
            },
            ExpiresIn=seconds,
        )

    def presign_put(self, key: str, size: int, seconds: int, sha256: bytes | None = None) -> tuple[str, dict[str, str]]:
        """An address that takes one object of so many bytes, by PUT, for a while; made without asking the store.

        Beside it the headers that such a PUT has to have. With a SHA-256 the store refuses what has another.
        """
        checksum = base64.b64encode(sha256).decode() if sha256 else None
        url = self._signer().generate_presigned_url(
            "put_object",
            Params={"Bucket": self.bucket, "Key": key, "ContentLength": size}
            | ({"ChecksumSHA256": checksum} if checksum else {}),
            ExpiresIn=seconds,
        )
        return url, {"x-amz-checksum-sha256": checksum} if checksum else {}

    def read(self, key: str, size: int | None = None, start: int = 0) -> Iterator[bytes]:
        """The object's bytes from one on, in pieces: of one state of it, for they are one answer.

        Raises StorageMismatch, before any of them, if there aren't ``size``.
        """
        with _reaching():
            client = self._client()
            found = (
                client.get_object(Bucket=self.bucket, Key=key, Range=f"bytes={start}-")
                if start  # of an empty object there is no range
                else client.get_object(Bucket=self.bucket, Key=key)
            )
            try:
                if size is not None and found["ContentLength"] != size:
                    raise StorageMismatch
                yield from found["Body"].iter_chunks(PART)
            finally:
                found["Body"].close()


class Upload:
    """A file on its way into the store, one part filling while one thread sends the part before."""

    def __init__(self, store: Store, key: str, upload_id: str, waiting: Callable[[], None], parts: Sequence[Part] = ()):
        self.key = key
        self.id = upload_id
        self.parts = list(parts)
        """The parts that the store has taken."""
        self.sent = len(self.parts)
        """How many parts were cut so far: the last one may still be on its way."""
        self._store = store
        self._client = store._client()
        self._waiting = waiting
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="upload")
        self._sending: Future[Part] | None = None
        self._part = bytearray()
        # A hash can't be carried over from another process: what was resumed is read back to be hashed.
        self._hash = None if parts else hashlib.sha256()
        self._away = False

    def write(self, data: bytes) -> None:
        """Take the next bytes; waits only when a part is full and the one before is still on its way."""
        if self._hash:
            self._hash.update(data)
        self._part += data
        if len(self._part) >= PART:
            self._send()

    def settle(self, waiting: Callable[[], None] | None = None) -> None:
        """Wait for the part that is on its way; what follows it is still to be written, here or by who resumes.

        What ``waiting`` raises leaves the part where it is: it may be waited for once more.
        """
        if self._sending:
            self.parts.append(self._await(self._sending, waiting))
            self._sending = None

    def finish(self) -> None:
        """Send what is left: all the parts are there, but nothing is visible yet."""
        self.settle()
        if self._part or not self.parts:  # an empty object has one empty part
            self._send()
            self.settle()

    def complete(self) -> Stored:
        """Make the object visible, then check that the store holds what was written (size and checksum).

        One that was written in more than one go is read back, part by part, for the SHA-256 of the whole.
        """
        self.finish()
        etag, checked = self._await(self._sender.submit(self._finish))
        self._sender.shutdown()
        sha256 = self._hash.hexdigest() if self._hash and checked else self._read_back()
        return Stored(sum(part.bytes for part in self.parts), sha256, etag)

    def abort(self) -> None:
        """Leave nothing: a part that is still on its way is waited for, else it could outlive the upload.

        A store that doesn't answer isn't asked once more: that would take longer than a lease, and whoever noted the
        upload removes it later.
        """
        self._part.clear()
        with suppress(StorageAway, StorageRefused):
            self.settle()
        self._sender.shutdown()
        if not self._away:
            self._store.abort(self.key, self.id)

    def leave(self) -> None:
        """Stop here; the upload stays open for who resumes it."""
        self._part.clear()
        self._sender.shutdown(wait=False)

    def _send(self) -> None:
        self.settle()
        self.sent += 1
        self._sending = self._sender.submit(self._put, self.sent, bytes(self._part))
        self._part.clear()

    def _put(self, number: int, body: bytes) -> Part:
        checksum = base64.b64encode(hashlib.sha256(body).digest()).decode()
        with _reaching():  # the store checks each part against its SHA-256 as it arrives
            part = self._client.upload_part(
                Bucket=self._store.bucket,
                Key=self.key,
                UploadId=self.id,
                PartNumber=number,
                Body=body,
                ChecksumSHA256=checksum,
            )
            return Part(part["ETag"], checksum, len(body))

    def _await[T](self, asked: "Future[T]", waiting: Callable[[], None] | None = None) -> T:
        """The store's answer."""
        while not wait([asked], timeout=1).done:
            (waiting or self._waiting)()
        try:
            return asked.result()
        except StorageAway:
            self._away = True
            raise

    def _finish(self) -> tuple[str, bool]:
        """Complete the upload and check it; the object's ETag, and whether the store keeps a checksum of its own.

        The completion names each part's ETag: where another part was put in its place meanwhile, the store refuses.
        """
        parts: list[CompletedPartTypeDef] = [
            {"PartNumber": number, "ETag": part.etag, "ChecksumSHA256": part.sha256}
            for number, part in enumerate(self.parts, 1)
        ]
        try:
            with _reaching():
                etag = self._client.complete_multipart_upload(
                    Bucket=self._store.bucket, Key=self.key, UploadId=self.id, MultipartUpload={"Parts": parts}
                )["ETag"]
        except StorageRefused as refused:
            # The answer to a completion that succeeded may have been lost; then its repetition finds no upload.
            found = self._store.head(self.key)
            if refused.details.get("status") != 404 or found is None:
                raise
            etag = found.etag
        checked = self._check(etag)
        # The SDK opens a second one where the first answer was lost. At worst the bucket's rule ends that.
        with suppress(StorageAway, StorageRefused):
            self._store.abort_uploads(self.key)
        return etag, checked

    def _check(self, etag: str) -> bool:
        """Ask the store what it holds: its size, its ETag, and its checksum over the parts' checksums.

        That checksum is the store's own, made of the bytes that it keeps, so the file isn't read again for it. False
        where the store keeps none.
        """
        found = self._store.head(self.key)
        if found is None or found.bytes != sum(part.bytes for part in self.parts) or found.etag != etag:
            raise StorageMismatch
        if not found.checksum:
            return False
        parts = b"".join(base64.b64decode(part.sha256) for part in self.parts)
        if found.checksum.partition("-")[0] != base64.b64encode(hashlib.sha256(parts).digest()).decode():
            raise StorageMismatch  # "…=-3": three parts
        return True

    def _read_back(self) -> str:
        """The SHA-256 of the object as the store gives it, each part of it checked."""
        whole, body = hashlib.sha256(), self._store.read(self.key)
        piece = b""
        for part in self.parts:
            held, missing = hashlib.sha256(), part.bytes
            while missing:
                if not piece:
                    piece = next(body, b"")
                    self._waiting()
                if not piece:
                    raise StorageMismatch
                taken, piece = piece[:missing], piece[missing:]
                held.update(taken)
                whole.update(taken)
                missing -= len(taken)
            if base64.b64encode(held.digest()).decode() != part.sha256:
                raise StorageMismatch
        return whole.hexdigest()


class LocalFile:
    """A file of this machine as a target: it bears its name when it is whole."""

    def __init__(self, path: Path):
        self.key = str(path)
        self._path = path
        self._partial = path.with_name(path.name + ".part")
        self._file = self._partial.open("wb")
        self._hash = hashlib.sha256()

    def write(self, data: bytes) -> None:
        """Take the next bytes."""
        self._hash.update(data)
        self._file.write(data)

    def complete(self) -> Stored:
        """Give the file its name."""
        self._file.close()
        self._partial.replace(self._path)
        return Stored(self._path.stat().st_size, self._hash.hexdigest(), "")

    def abort(self) -> None:
        """Remove what was written."""
        self._file.close()
        self._partial.unlink(missing_ok=True)


def client(endpoint: str | None = None, access_key_id: str | None = None, secret: str | None = None) -> "S3Client":
    """A client with time-outs shorter than a lease; AWS_ENDPOINT_URL and the environment's credentials by default."""
    import boto3
    from botocore.config import Config

    made: S3Client = boto3.client(
        "s3",
        endpoint_url=endpoint,
        aws_access_key_id=access_key_id,
        aws_secret_access_key=secret,
        config=Config(
            signature_version="s3v4",
            connect_timeout=5,
            read_timeout=15,
            retries={"mode": "standard", "total_max_attempts": 2},
            s3={
                "addressing_style": "path"
            },  # one host for every bucket, so that a front port or CDN can stand before it
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        ),
    )
    return made


PASSING = ("RequestTimeout", "OperationAborted", "ConditionalRequestConflict")
"""S3's codes of status 400 and 409 that say nothing but: ask again (Amazon S3 API Reference, Error responses)."""


@contextmanager
def _reaching() -> Iterator[None]:
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError, IncompleteReadError
    from botocore.exceptions import ConnectionError as NoConnection
    from botocore.parsers import ResponseParserError

    try:
        yield
    except ClientError as error:
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if status >= 500 or status in (408, 429) or error.response.get("Error", {}).get("Code") in PASSING:
            raise StorageAway(status) from None
        raise StorageRefused(status) from None
    except (HTTPClientError, NoConnection, IncompleteReadError):
        raise StorageAway from None
    except (ResponseParserError, KeyError, RecursionError):  # a proxy's page, an ETag left out, a redirect to itself
        raise StorageAway from None
    except BotoCoreError as error:  # no credentials, no region
        raise StorageRefused from error
