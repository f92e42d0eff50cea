"""Files of versions: GET redirects to a presigned address, HEAD answers by itself.

A presigned address is good for one method, so a HEAD of it is answered 403; that is why HEAD never redirects.
"""

import base64
from datetime import UTC
from email.utils import format_datetime
from functools import cache
from typing import TYPE_CHECKING

from chalice.app import HeadersType, Response

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

    @api.route("/datasets/{dataset}/versions/{number}/files/{name}", "GET", "HEAD", role=None, answers=(307,))
    def get_file(call: Call, dataset: str, number: str, name: str) -> Response:
        """A file of a version: what dcat:downloadURL names."""
        version = published(call, dataset_id(dataset), version_number(number))
        return _file(call, version, name, REDIRECT)

    @api.route("/datasets/{dataset}/files/{name}", "GET", "HEAD", role=None, answers=(307,))
    def get_current_file(call: Call, dataset: str, name: str) -> Response:
        """A file of the current version."""
        return _file(call, published(call, dataset_id(dataset)), name, CURRENT)


def _file(call: Call, version: Row, name: str, cache_control: str) -> Response:
    file = next((file for file in version["files"] if file_name(version, file) == name), None)
    if file is None:
        names = ", ".join(file_name(version, file) for file in version["files"])
        raise not_found(f"This version's files are {names}.")
    if call.request.method == "HEAD":
        digest = base64.b64encode(bytes.fromhex(file["sha256"])).decode()
        headers: HeadersType = {
            "Content-Type": file["media_type"],
            "Content-Length": str(file["bytes"]),
            "Etag": file.get("etag") or f'"{file["sha256"]}"',  # the store's own, which the redirected GET gives
            "Last-Modified": format_datetime(version["issued_at"].astimezone(UTC), usegmt=True),
            "Repr-Digest": f"sha-256=:{digest}:",
            "Cache-Control": cache_control,
        }
        return unless_known(call, Response("", headers))
    address = store().presign(file["key"], name, file["media_type"], PRESIGNED)
    return Response("", {"Location": address, "Cache-Control": cache_control}, 307)


@cache
def store() -> "Store":
    """Object storage of this installation; one client a process."""
    from chalicelib.exports import Store  # and boto3, which only a GET of a file needs

    return Store.of(settings())
