"""Published versions, as the public addresses look them up."""

from typing import Any

from chalicelib.catalog import describing
from chalicelib.db import Row, statements

from .problems import Problem, not_found
from .routing import Call

CURRENT = "public, no-cache"
"""What is current may be another thing at the next look, and a version may be withdrawn; an ETag makes a look cheap."""


def current_version(call: Call, dataset: str) -> Row | None:
    """The current version of a dataset, if there is one."""
    return call.db.one(_sql.find_version, dataset=dataset, number=None, document=None)


def published(call: Call, dataset: str, number: int | None = None, document: str | None = None) -> Row:
    """A version of a dataset, the current one without a number; 404, or 410 where it was withdrawn or all were."""
    found = call.db.one(_sql.find_version, dataset=dataset, number=number, document=document)
    if found is None:
        if number is None and call.db.run(_sql.list_versions, dataset=dataset):
            raise Problem("gone", "Every version of this dataset was withdrawn.")
        raise not_found("No published dataset has this id." if number is None else "There is no such version.")
    if found["withdrawn_at"]:
        raise Problem("gone", f"Version {found['number']} was withdrawn.")
    return found


def all_versions(call: Call, dataset: str) -> list[Row]:
    """Every version of a dataset, newest first; 404 where there is none."""
    found = call.db.run(_sql.list_versions, dataset=dataset)
    if not found:
        raise not_found("No published dataset has this id.")
    return found


def version_record(call: Call, version: Row) -> dict[str, Any]:
    """What is kept of a version for ever: times, revision, files with sizes and checksums."""
    address = call.url(f"/datasets/{version['dataset_id']}/versions/{version['number']}")
    return {
        "dataset": version["dataset_id"],
        "version": version["number"],
        "issued_at": version["issued_at"],
        "withdrawn_at": version["withdrawn_at"],
        "current": bool(version["is_current"]),
        "definition_revision": version["definition_revision"],
        "publication": version["job_id"],
        "records": version["records"],
        "files": [] if version["withdrawn_at"] else [_file(address, version, file) for file in version["files"]],
        "links": {"self": address, "dataset": call.url(f"/datasets/{version['dataset_id']}")},
    }


def _file(address: str, version: Row, file: dict[str, Any]) -> dict[str, Any]:
    name = file_name(version, file)
    return {
        "name": name,
        "format": file["format"],
        "media_type": file["media_type"],
        **({"compress": file["compress"]} if file.get("compress") else {}),
        "bytes": file["bytes"],
        "sha256": file["sha256"],
        "url": f"{address}/files/{name}",
    }


def file_name(version: Row, file: dict[str, Any]) -> str:
    """What a file is called in its address."""
    return describing.name_of(file, version["dataset_id"])


_sql = statements("chalicelib.api")
