"""S3's multipart uploads in memory: as strict as the real ones, and fast enough to die at every call."""

import base64
import hashlib
from collections.abc import Callable
from itertools import count
from typing import Any

from botocore.exceptions import ClientError


class MemoryS3:
    """What `Store` calls of a client. `at` hears of each call, before and after its effect, and may raise."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.uploads: dict[str, dict[str, Any]] = {}
        self.at: Callable[[str, dict[str, Any]], None] = lambda call, asked: None
        self._ids = count(1)

    def __getattr__(self, name: str) -> Any:
        act = getattr(type(self), f"_{name}")

        def call(**arguments: Any) -> Any:
            self.at(f"before {name}", arguments)
            answer = act(self, arguments)
            self.at(f"after {name}", arguments)
            return answer

        return call

    def _create_multipart_upload(self, asked: dict[str, Any]) -> Any:
        upload = f"upload-{next(self._ids)}"
        self.uploads[upload] = {"Key": asked["Key"], "ContentType": asked["ContentType"], "parts": {}}
        return {"UploadId": upload}

    def _upload_part(self, asked: dict[str, Any]) -> Any:
        upload, body = self._open(asked, "UploadPart"), asked["Body"]
        if asked["ChecksumSHA256"] != _checksum(body):
            raise refused("BadDigest", 400, "UploadPart")
        upload["parts"][asked["PartNumber"]] = body
        return {"ETag": _etag(body)}

    def _complete_multipart_upload(self, asked: dict[str, Any]) -> Any:
        upload = self._open(asked, "CompleteMultipartUpload")
        bodies = []
        for part in asked["MultipartUpload"]["Parts"]:
            body = upload["parts"].get(part["PartNumber"])
            if body is None or (_etag(body), _checksum(body)) != (part["ETag"], part["ChecksumSHA256"]):
                raise refused("InvalidPart", 400, "CompleteMultipartUpload")
            bodies.append(body)
        del self.uploads[asked["UploadId"]]
        whole = base64.b64encode(hashlib.sha256(b"".join(hashlib.sha256(b).digest() for b in bodies)).digest()).decode()
        etag = f'"{hashlib.md5(b"".join(hashlib.md5(body).digest() for body in bodies)).hexdigest()}-{len(bodies)}"'
        held = {"bytes": b"".join(bodies), "ETag": etag, "ChecksumSHA256": f"{whole}-{len(bodies)}"}
        self.objects[asked["Key"]] = held
        return {"ETag": etag}

    def _abort_multipart_upload(self, asked: dict[str, Any]) -> Any:
        self._open(asked, "AbortMultipartUpload")
        del self.uploads[asked["UploadId"]]

    def _head_object(self, asked: dict[str, Any]) -> Any:
        if asked["Key"] not in self.objects:
            raise refused("404", 404, "HeadObject")
        held = self.objects[asked["Key"]]
        return {"ContentLength": len(held["bytes"]), "ETag": held["ETag"], "ChecksumSHA256": held["ChecksumSHA256"]}

    def _get_object(self, asked: dict[str, Any]) -> Any:
        return {"Body": _Body(self.objects[asked["Key"]]["bytes"])}

    def _delete_object(self, asked: dict[str, Any]) -> Any:
        self.objects.pop(asked["Key"], None)

    def _open(self, asked: dict[str, Any], call: str) -> Any:
        if asked["UploadId"] not in self.uploads:
            raise refused("NoSuchUpload", 404, call)
        return self.uploads[asked["UploadId"]]

    def get_paginator(self, name: str) -> Any:
        """Of the open uploads: nothing else is ever listed."""
        assert name == "list_multipart_uploads"
        return self

    def paginate(self, **asked: Any) -> list[Any]:
        """One page of them."""
        found = [{"UploadId": id, "Key": upload["Key"]} for id, upload in self.uploads.items()]
        return [{"Uploads": [upload for upload in found if upload["Key"].startswith(asked["Prefix"])]}]


class _Body:
    def __init__(self, data: bytes):
        self._data = data

    def iter_chunks(self, size: int) -> Any:
        yield from (self._data[at : at + size] for at in range(0, len(self._data), size))

    def close(self) -> None:
        """Nothing is held open."""


def refused(code: str, status: int, call: str) -> ClientError:
    """As botocore tells of a refusal."""
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, call)


def _checksum(body: bytes) -> str:
    return base64.b64encode(hashlib.sha256(body).digest()).decode()


def _etag(body: bytes) -> str:
    return f'"{hashlib.md5(body).hexdigest()}"'
