"""Contents of objects and parts as immutable files.

Each write makes a new file of random name, remembered as `content_id` of the S3Object or S3Part. A file counts only
once a committed record names it (records.py), so nothing is ever overwritten, and a kill leaves at worst a file that
no record names. For the same reason `remove` does nothing here: records.py deletes a file after the record is gone.
"""

import os
from collections.abc import Buffer
from contextvars import ContextVar
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from shutil import copyfile
from threading import Lock
from typing import Any, Literal
from uuid import uuid4
from weakref import WeakValueDictionary

from localstack.services.s3.models import S3Multipart
from localstack.services.s3.storage.core import S3ObjectStore
from localstack.services.s3.storage.ephemeral import (
    EphemeralS3StoredMultipart,
    EphemeralS3StoredObject,
    LockedFileMixin,
)

FSYNC = os.environ.get("S3_DURABLE_FSYNC") == "1"

type Item = Any  # LocalStack's S3Object or S3Part, with our `content_id`


@dataclass
class Written:
    """What the request in hand has written: contents, and the keys of objects among them (a part has none)."""

    contents: set[str] = field(default_factory=set)
    keys: set[str] = field(default_factory=set)


WRITTEN: ContextVar[Written] = ContextVar("written")


class ContentFile(LockedFileMixin, FileIO):
    """A file with the locks that LocalStack's stored objects want."""

    def write(self, data: Buffer) -> int:
        """Write all of it: a plain FileIO may write less on a full disk, and LocalStack doesn't look."""
        view = memoryview(data)
        size = len(view)
        while view:
            view = view[super().write(view) :]
        return size


class StoredContent(EphemeralS3StoredObject):
    """An open content; `key_lock` is held until it is closed."""

    _etag: Any

    def __init__(self, s3_object: Item, path: Path, mode: Literal["r", "w"], key_lock: Lock | None = None) -> None:
        file: Any = ContentFile(path, "x+" if mode == "w" else "r")
        super().__init__(s3_object, file, mode)
        self.key_lock = key_lock
        if key_lock:
            key_lock.acquire()

    @property
    def last_modified(self) -> int:
        """The time of the record: the provider asks if the content changed meanwhile, and it can't."""
        return int(self.s3_object.internal_last_modified)

    def close(self) -> None:
        """Close the file, which LocalStack's own never does."""
        if self.closed:
            return
        if FSYNC and self._mode == "w":
            os.fsync(self.file.fileno())
        self.file.close()
        super().close()
        if self.key_lock:
            self.key_lock.release()


class StoredParts(EphemeralS3StoredMultipart):
    """The parts of an upload: contents like any other."""

    _s3_store: Any

    def open(self, s3_part: Item, mode: Literal["r", "w"] = "r") -> StoredContent:
        """Open the content of one part."""
        stored: StoredContent = self._s3_store.open(self.bucket, s3_part, mode)
        return stored

    def remove_part(self, s3_part: Item) -> None:
        """Left to records.py."""

    def close(self) -> None:
        """Nothing is open."""


class Contents(S3ObjectStore):
    """The folder of contents, in the form that LocalStack's provider wants."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Writers of one key take turns, for If-Match and If-None-Match.
        self._key_locks: WeakValueDictionary[tuple[str, str], Lock] = WeakValueDictionary()
        self._key_locks_lock = Lock()

    def path(self, content_id: str) -> Path:
        """Return where a content is."""
        return self.folder / content_id

    def open(self, bucket: str, s3_object: Item, mode: Literal["r", "w"] = "r") -> StoredContent:
        """Open an object's or part's content; for writing: a new one."""
        if mode == "r":
            return StoredContent(s3_object, self.path(s3_object.content_id), mode)
        return StoredContent(s3_object, self._new(s3_object), mode, self._key_lock(bucket, s3_object))

    def copy(self, src_bucket: str, src_object: Item, dest_bucket: str, dest_object: Item) -> StoredContent:
        """Give another object the same content."""
        source, target = self.path(src_object.content_id), self._new(dest_object)
        try:
            target.hardlink_to(source)  # contents never change, so copies may share one
        except FileNotFoundError:
            raise  # the source was replaced meanwhile; the provider's wrapper asks again
        except OSError:  # no hard links here, or too many
            copyfile(source, target)
        stored = StoredContent(dest_object, target, "r", self._key_lock(dest_bucket, dest_object))
        if "-" not in src_object.etag:  # else it is an upload's ETag, and a copy gets the plain MD5
            stored._etag = src_object.etag
        return stored

    def get_multipart(self, bucket: str, s3_multipart: S3Multipart) -> StoredParts:
        """Return the parts of an upload."""
        store: Any = self
        return StoredParts(store, bucket, s3_multipart, str(self.folder))

    def remove(self, bucket: str, s3_object: Item) -> None:
        """Left to records.py."""

    def remove_multipart(self, bucket: str, s3_multipart: S3Multipart) -> None:
        """Left to records.py."""

    def _new(self, s3_object: Item) -> Path:
        s3_object.content_id = uuid4().hex
        written = WRITTEN.get()
        written.contents.add(s3_object.content_id)
        if key := getattr(s3_object, "key", None):
            written.keys.add(key)
        return self.path(s3_object.content_id)

    def _key_lock(self, bucket: str, s3_object: Item) -> Lock | None:
        if not hasattr(s3_object, "key"):
            return None
        with self._key_locks_lock:
            return self._key_locks.setdefault((bucket, s3_object.key), Lock())
