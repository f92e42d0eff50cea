"""Files of versions: GET redirects to a presigned address, HEAD answers by itself; and what describes them.

A presigned address is good for one method, so a HEAD of it is answered 403; that is why HEAD never redirects.
"""

import base64
import hashlib
import json
from datetime import UTC
from email.utils import format_datetime
from functools import cache
from typing import TYPE_CHECKING, Any

from chalice.app import HeadersType, Response

from chalicelib.catalog import describing
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Row
from chalicelib.settings import settings

from .problems import not_found
from .requests import dataset_id, version_number
from .routing import Api, Call, unless_known
from .versions import CURRENT, file_name, published

if TYPE_CHECKING:
    from chalicelib.exports import Store

PRESIGNED = 300
"""Seconds for which a presigned address is good."""

REDIRECT = "public, max-age=60"
"""A version's file never changes, but it may be withdrawn; and a redirect's address is good for five minutes."""


def register(api: Api) -> None:
    """GET and HEAD of /datasets/{dataset}/[versions/{number}/]files/{name}."""
    found: Any = {
        "role": None,
        "answers": (200, 304, 307),
        "headers": ("If-Match", "If-None-Match"),
        "forms": (describing.CSVW, describing.SCHEMA),
    }

    @api.route("/datasets/{dataset}/versions/{number}/files/{name}", "GET", "HEAD", **found)
    def get_file(call: Call, dataset: str, number: str, name: str) -> Response:
        """A file of a version: what dcat:downloadURL names."""
        version = published(call, dataset_id(dataset), version_number(number))
        return _file(call, version, name, REDIRECT)

    @api.route("/datasets/{dataset}/files/{name}", "GET", "HEAD", **found)
    def get_current_file(call: Call, dataset: str, name: str) -> Response:
        """A file of the current version."""
        return _file(call, published(call, dataset_id(dataset)), name, CURRENT)


def _file(call: Call, version: Row, name: str, cache_control: str) -> Response:
    files = {file_name(version, file): file for file in version["files"]}
    described = {
        beside: file
        for file in files.values()
        if (beside := describing.beside(file, version["dataset_id"])) is not None
    }
    if name in described:
        return _description(call, version, described[name], name, cache_control)
    file = files.get(name)
    if file is None:
        raise not_found(f"This version's files are {', '.join([*files, *described])}.")
    headers: HeadersType = {"Cache-Control": cache_control}
    if file["media_type"] == "text/csv":  # that is how a reader of CSVW finds it, whatever the file is called
        beside = describing.beside(file, version["dataset_id"])
        headers["Link"] = f'<{beside}>; rel="describedby"; type="{describing.CSVW}"'
    media_type = file.get("compress") or file["media_type"]
    if call.request.method == "HEAD":
        digest = base64.b64encode(bytes.fromhex(file["sha256"])).decode()
        headers |= {
            "Content-Type": media_type,
            "Content-Length": str(file["bytes"]),
            "Etag": file.get("etag") or f'"{file["sha256"]}"',  # the store's own, which the redirected GET gives
            "Last-Modified": format_datetime(version["issued_at"].astimezone(UTC), usegmt=True),
            "Repr-Digest": f"sha-256=:{digest}:",
        }
        return unless_known(call, Response("", headers))
    address = store().presign(file["key"], name, media_type, PRESIGNED)
    return Response("", {"Location": address, **headers}, 307)


def _description(call: Call, version: Row, file: dict[str, Any], name: str, cache_control: str) -> Response:
    """What says what is in a file: CSVW metadata, or a JSON Schema."""
    found = registry.definition(call.db, version["dataset_id"], version["definition_revision"])
    assert found is not None  # a foreign key holds it
    definition = Definition.kept(found["body"])
    if file["media_type"] == "text/csv":
        media_type, said = describing.CSVW, describing.csvw(definition, file, version["dataset_id"])
    else:
        address = call.url(f"/datasets/{version['dataset_id']}/versions/{version['number']}/files/{name}")
        media_type, said = describing.SCHEMA, describing.json_schema(definition, address)
    body = json.dumps(said, ensure_ascii=False, indent=1)
    headers: HeadersType = {
        "Content-Type": f"{media_type}; charset=utf-8",
        "Etag": f'"{hashlib.sha256(body.encode()).hexdigest()}"',
        "Cache-Control": cache_control,
    }
    return unless_known(call, Response("" if call.request.method == "HEAD" else body, headers))


@cache
def store() -> "Store":
    """Object storage of this installation; one client a process."""
    from chalicelib.exports import Store  # and boto3, which only a GET of a file needs

    return Store.of(settings())
