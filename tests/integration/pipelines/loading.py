"""Somebody who loads trees, for the tests of loads."""

import json
from typing import Any
from uuid import UUID, uuid4

import boto3

from chalicelib.datasets import registry
from chalicelib.engine import Idempotency
from chalicelib.pipelines.load import LoadDialect, upload_key
from chalicelib.pipelines.load.accepting import accept_load, begin_upload
from tests.integration.pipelines.conftest import BUCKET

COLUMNS: list[dict[str, Any]] = [
    {"name": "id", "type": "integer"},
    {"name": "species", "type": "text", "from": "Art", "required": True},
    {"name": "height", "type": "decimal"},
    {"name": "planted", "type": "date"},
]
CSV = "id;Art;height;planted\n1;Bergahorn;12,50;01.04.1987\n2;Höhe ist unbekannt;;\n"
DIALECT = {"encoding": "windows-1252", "delimiter": ";", "decimal": ",", "date": "DD.MM.YYYY"}


class Owner:
    """Loads into the office's trees."""

    def __init__(self, office, name="owner@example.org"):
        self.office = office
        self.name = name

    def load(self, rows=None, *, key=None, mode="upsert", upload=None, engine=None, **dialect) -> UUID:
        """By default a JSON array of the rows; a text is CSV, or what the dialect says."""
        as_array = rows is not None and not isinstance(rows, str)
        body = b"" if rows is None else json.dumps(rows).encode() if as_array else rows.encode()
        return accept_load(
            engine or self.office.engine,
            "trees",
            self.name,
            self.key(key),
            mode=mode,
            dialect=LoadDialect(**({"format": "jsonl"} if as_array else dialect)),
            body=body,
            as_array=as_array,
            upload=upload,
        ).id

    def key(self, key=None) -> Idempotency:
        hashed = (key or uuid4().hex).encode()
        return Idempotency(principal=self.name.encode(), route="POST /datasets/trees/loads", key=hashed, body=b"same")

    def upload(self, content: bytes | None) -> UUID:
        """Begin an upload, and put the content there."""
        upload, _ = begin_upload(self.office.engine, "trees", self.name, len(content or b"1"))
        if content is not None:
            boto3.client("s3").put_object(Bucket=BUCKET, Key=upload_key(upload), Body=content)
        return upload

    def done(self, job) -> tuple[int, ...] | None:
        """Rows, inserted, updated, deleted."""
        found = self.office.db.one(
            "select rows, inserted, updated, deleted from dataset.load where job_id = %(job)s", job=job
        )
        return tuple(found.values()) if found else None

    def rows(self) -> list[tuple[Any, ...]]:
        """What the store holds."""
        return [tuple(row.values()) for row in self.office.db.run("select * from store.trees order by id")]

    def define(self, **changes) -> None:
        """Define the trees as loaded ones."""
        self.office.define(**{"source": "loaded", "columns": COLUMNS, "key": ["id"]} | changes)


def made(office) -> Owner:
    """The owner, and the store as the source of the dataset."""
    registry.register_store(office.db, "loaded", "trees")
    owner = Owner(office)
    owner.define()
    return owner


def uploads(office) -> list[str]:
    """The objects that were uploaded."""
    return [key for key in office.files() if key.startswith("uploads/")]


def staging_tables(office) -> list[str]:
    """The tables of the staging schema."""
    found = office.db.run("select relname from pg_class where relnamespace = 'staging'::regnamespace and relkind = 'r'")
    return [row["relname"] for row in found]
