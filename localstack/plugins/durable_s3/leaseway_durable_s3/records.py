"""Records of buckets, objects and uploads: rows of one SQLite database.

The provider goes on working on LocalStack's store in memory. After each changing request, and before its answer,
`save` brings the rows of what the request named in line with memory, in one transaction. `load` fills the memory.
"""

import contextlib
import fcntl
import gc
import logging
import os
import pickle
import sqlite3
from collections import Counter
from collections.abc import Mapping, Set
from enum import IntEnum
from pathlib import Path
from threading import Lock
from typing import Any

from localstack import config
from localstack.constants import AWS_REGION_US_EAST_1
from localstack.services.s3.constants import DEFAULT_BUCKET_ENCRYPTION
from localstack.services.s3.models import (
    KeyStore,
    S3Bucket,
    S3DeleteMarker,
    S3Multipart,
    S3Object,
    S3Part,
    VersionedKeyStore,
    s3_stores,
)
from localstack.services.s3.utils import get_unique_key_id

from leaseway_durable_s3.contents import FSYNC, Contents

LOG = logging.getLogger(__name__)

FORMAT = 1
# name: an object's key or an upload's id; sub: a version's id or a part's number; attributes: pickled, with the tags.
# The versions of an object are in the order of their row ids.
SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
    kind INTEGER, bucket TEXT, name TEXT, sub TEXT, content TEXT, attributes BLOB,
    PRIMARY KEY (bucket, kind, name, sub)
);
CREATE INDEX IF NOT EXISTS record_content ON record (content) WHERE content IS NOT NULL;
"""


class Kind(IntEnum):
    """What a record is about, in the order of loading."""

    BUCKET = 0
    OBJECT = 1
    UPLOAD = 2
    PART = 3


class Records:
    """The folder of one LocalStack's S3 data.

    Raises:
        RuntimeError: another LocalStack or another user has it, or a newer version wrote it.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = Lock()
        self._saved_buckets: set[str] = set()
        try:
            self.contents = Contents(folder / "contents")
            if not os.access(self.contents.folder, os.R_OK | os.W_OK | os.X_OK):
                raise PermissionError
            self._claim(folder / "owner")
            self._db = sqlite3.connect(folder / "records.sqlite", check_same_thread=False)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode = WAL")
            # NORMAL: a commit survives the process, but perhaps not a power failure
            self._db.execute(f"PRAGMA synchronous = {'FULL' if FSYNC else 'NORMAL'}")
            (found,) = self._db.execute("PRAGMA user_version").fetchone()
            if found not in (0, FORMAT):
                raise RuntimeError(f"The S3 data in {folder} has format {found}; this version reads {FORMAT}.")
            self._db.executescript(SCHEMA + f"PRAGMA user_version = {FORMAT};")
        except PermissionError as e:
            raise RuntimeError(
                f"The S3 data in {folder} isn't writable for this user: another user made it. "
                "Give it to this user with `chown -R`, or run as the other one."
            ) from e
        except (OSError, sqlite3.Error) as e:
            raise RuntimeError(f"The S3 data in {folder} can't be used: {e}.") from e

    def _claim(self, path: Path) -> None:
        """Take the folder for this process's life; a kill gives it back by itself."""
        self._owner = path.open("a+")
        try:
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            self._owner.seek(0)
            raise RuntimeError(
                f"The S3 data in {path.parent} is in use by another LocalStack (process {self._owner.read()}). "
                "Stop that one, or set S3_DURABLE_DIR to a folder of this one's own."
            ) from e
        self._owner.truncate(0)
        self._owner.write(str(os.getpid()))
        self._owner.flush()

    def close(self) -> None:
        """Close the database and give the folder back."""
        with self._lock:
            self._db.close()
            self._owner.close()

    # ---- save

    def save(
        self,
        bucket: str | None,
        *,
        deleted: bool = False,
        keys: Mapping[str, Set[str]] | None = None,
        upload: str | None = None,
        part: str | None = None,
        written: Set[str] = frozenset(),
    ) -> None:
        """Record what a request did, then delete the contents that no record names any more.

        Args:
            bucket: the bucket that the request named.
            deleted: the request was to delete it.
            keys: the object keys that the request named or wrote, with the version ids named; empty if it was about
                the bucket itself.
            upload: the upload that it named or began.
            part: the part's number that it named.
            written: the contents that it made.
        """
        kept: set[str | None] = set()  # contents that records name now
        old: set[str] = set(written)  # contents that they may name no longer
        with self._lock, self._db:
            if s3_bucket := _find_bucket(bucket):
                tags = s3_stores[s3_bucket.bucket_account_id][s3_bucket.bucket_region].tags
                if not (keys or upload) or s3_bucket.name not in self._saved_buckets:
                    self._put(Kind.BUCKET, s3_bucket.name, "", "", s3_bucket, tags.get_tags(s3_bucket.bucket_arn))
                    self._saved_buckets.add(s3_bucket.name)
                for key, versions in (keys or {}).items():
                    self._save_object(s3_bucket, key, versions, tags, kept, old)
                if upload:
                    self._save_upload(s3_bucket, upload, part, kept, old)
            elif bucket and deleted:
                old |= self._delete("bucket = ?", bucket)
                self._saved_buckets.discard(bucket)
            old = {c for c in old - kept if not self._all("SELECT 1 FROM record WHERE content = ?", c)}
        for content in old:
            with contextlib.suppress(OSError):
                self.contents.path(content).unlink()

    def _save_object(
        self, s3_bucket: S3Bucket, key: str, versions: Set[str], tags: Any, kept: set[str | None], old: set[str]
    ) -> None:
        bucket = s3_bucket.name
        now: Any = s3_bucket.objects._store.get(key)
        if isinstance(s3_bucket.objects, KeyStore):
            now = {"null": now} if now else {}
        now = dict(now or {})  # a copy, for other requests go on

        def recorded(sub: str) -> list[tuple[str | None]]:
            return self._all(
                "SELECT content FROM record WHERE bucket = ? AND kind = ? AND name = ? AND sub = ?",
                *(bucket, Kind.OBJECT, key, sub),
            )

        # There may be thousands of versions. Those that can differ from their records: the newest, back to the first
        # that has been saved; those named; and "null", the only one that is replaced in its place.
        newest: list[str] = []
        for sub in reversed(now):
            newest.insert(0, sub)
            if recorded(sub) == [(_content_of(now[sub]),)]:
                break
        for sub in dict.fromkeys([*newest, *versions, "null"]):
            if s3_object := now.get(sub):
                old |= {content for (content,) in recorded(sub) if content}
                object_tags = tags.get_tags(get_unique_key_id(bucket, key, sub))
                self._put(Kind.OBJECT, bucket, key, sub, s3_object, object_tags)
                kept.add(_content_of(s3_object))
            else:
                old |= self._delete("bucket = ? AND kind = ? AND name = ? AND sub = ?", bucket, Kind.OBJECT, key, sub)

    def _save_upload(
        self, s3_bucket: S3Bucket, upload: str, part: str | None, kept: set[str | None], old: set[str]
    ) -> None:
        bucket = s3_bucket.name
        if not (s3_multipart := s3_bucket.multiparts.get(upload)):  # completed or aborted
            where = "bucket = ? AND kind IN (?, ?) AND name = ?"
            old |= self._delete(where, bucket, Kind.UPLOAD, Kind.PART, upload)
        elif part and (s3_part := s3_multipart.parts.get(part)):
            where = "bucket = ? AND kind = ? AND name = ? AND sub = ?"
            old |= self._delete(where, bucket, Kind.PART, upload, part)
            self._put(Kind.PART, bucket, upload, part, s3_part)
            kept.add(_content_of(s3_part))
        else:  # created just now
            self._put(Kind.UPLOAD, bucket, upload, "", s3_multipart)

    def _put(self, kind: Kind, bucket: str, name: str, sub: str, item: Any, tags: Any = None) -> None:
        self._db.execute(
            "INSERT INTO record VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO UPDATE SET content = excluded.content, attributes = excluded.attributes",
            (kind, bucket, name, sub, _content_of(item), pickle.dumps((_attributes_of(item), tags))),
        )

    def _delete(self, where: str, *parameters: Any) -> set[str]:
        rows = self._all(f"DELETE FROM record WHERE {where} RETURNING content", *parameters)  # noqa: S608 - our text
        return {content for (content,) in rows if content}

    def _all(self, sql: str, *parameters: Any) -> list[Any]:
        return self._db.execute(sql, parameters).fetchall()

    # ---- load

    def load(self) -> None:
        """Fill LocalStack's store, and delete the files of requests that were never answered."""
        gc.disable()  # many new objects and no garbage: it would only look at them over and over
        try:
            named = self._load_records()
        finally:
            gc.enable()
        found = {entry.name for entry in os.scandir(self.contents.folder)}
        for content in found - named:
            self.contents.path(content).unlink()
        if missing := named - found:
            LOG.error("%s files are missing in %s.", len(missing), self.contents.folder)

    def _load_records(self) -> set[str]:
        buckets: dict[str, S3Bucket] = {}
        foreign: set[str] = set()
        named: set[str] = set()
        count: Counter[Kind] = Counter()
        for kind in Kind:
            for bucket, name, sub, content, attributes in self._db.execute(
                "SELECT bucket, name, sub, content, attributes FROM record WHERE kind = ? ORDER BY rowid", (kind,)
            ):
                fields, tags = pickle.loads(attributes)  # noqa: S301 - our own file, in a folder of this user's
                # Lambda keeps functions' code in buckets of an internal account. LocalStack forgets the functions,
                # so their code would only pile up.
                if kind is Kind.BUCKET and fields["bucket_account_id"] != config.INTERNAL_RESOURCE_ACCOUNT:
                    buckets[bucket] = _load_bucket(fields, tags)
                elif bucket in buckets:
                    _load_record(buckets[bucket], kind, name, sub, fields, tags)
                else:
                    foreign.add(bucket)
                    continue
                count[kind] += 1
                if content:
                    named.add(content)
        with self._db:
            for bucket in foreign:
                self._delete("bucket = ?", bucket)
        self._saved_buckets = set(buckets)
        LOG.info("S3 data: %s buckets, %s object versions, %s uploads with %s parts.", *(count[kind] for kind in Kind))
        return named


def _find_bucket(name: str | None) -> S3Bucket | None:
    store = s3_stores[config.INTERNAL_RESOURCE_ACCOUNT][AWS_REGION_US_EAST_1]  # its map is of all accounts
    if name and (account := store.global_bucket_map.get(name)):
        return s3_stores[account][AWS_REGION_US_EAST_1].buckets.get(name)  # and this one of all regions
    return None


def _content_of(item: Any) -> str | None:
    return getattr(item, "content_id", None)


def _attributes_of(item: Any) -> dict[str, Any]:
    """The attributes alone, not the object: they then load into a class that has gained others meanwhile."""
    attributes = dict(vars(item))
    if isinstance(item, S3Bucket):
        del attributes["objects"], attributes["multiparts"]
        if attributes["encryption_rule"] is DEFAULT_BUCKET_ENCRYPTION:
            del attributes["encryption_rule"]  # the provider asks for its identity: left to S3Bucket()
    elif isinstance(item, S3Multipart):
        del attributes["parts"]
        attributes["object"] = dict(vars(item.object))
    return attributes


def _filled(item: Any, attributes: dict[str, Any]) -> Any:
    vars(item).update(attributes)
    return item


def _load_bucket(a: dict[str, Any], tags: dict[str, str]) -> S3Bucket:
    bucket: S3Bucket = _filled(S3Bucket(a["name"], a["bucket_account_id"], a["bucket_region"], a["owner"]), a)
    bucket.objects = VersionedKeyStore() if bucket.versioning_status else KeyStore()
    store = s3_stores[bucket.bucket_account_id][bucket.bucket_region]
    store.buckets[bucket.name] = bucket
    store.global_bucket_map[bucket.name] = bucket.bucket_account_id
    if tags:
        store.tags.update_tags(bucket.bucket_arn, tags)
    return bucket


def _load_record(
    bucket: S3Bucket, kind: Kind, name: str, sub: str, a: dict[str, Any], tags: dict[str, str] | None
) -> None:
    if kind is Kind.OBJECT:
        s3_object = _filled(S3Object(name) if "etag" in a else S3DeleteMarker(name, sub), a)
        if bucket.versioning_status:
            s3_object.version_id = sub  # an object older than the bucket's versioning was saved with None
            s3_object.is_current = True  # set() takes it back when a later version follows
        bucket.objects.set(name, s3_object)
        if tags:
            store = s3_stores[bucket.bucket_account_id][bucket.bucket_region]
            store.tags.update_tags(get_unique_key_id(bucket.name, name, sub), tags)
    elif kind is Kind.UPLOAD:
        s3_object = _filled(S3Object(a["object"]["key"]), a["object"])
        bucket.multiparts[name] = _filled(S3Multipart(s3_object.key), a | {"object": s3_object})
    elif kind is Kind.PART and name in bucket.multiparts:
        bucket.multiparts[name].parts[sub] = _filled(S3Part(int(sub)), a)
