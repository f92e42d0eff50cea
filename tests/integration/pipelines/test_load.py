"""Rows that their owner pushes: in the store all of them or none, once, and published from there."""

import json
from uuid import uuid4

import pytest

from chalicelib.datasets import registry
from chalicelib.engine import Idempotency
from chalicelib.pipelines.load import LoadDialect
from chalicelib.pipelines.load.accepting import accept_load, counts

COLUMNS = [
    {"name": "id", "type": "integer"},
    {"name": "species", "type": "text", "from": "Art", "required": True},
    {"name": "height", "type": "decimal"},
    {"name": "planted", "type": "date"},
]


class Owner:
    """Somebody who loads trees."""

    def __init__(self, office, name="owner@example.org"):
        self.office = office
        self.name = name

    def key(self, key=None) -> Idempotency:
        principal = self.name.encode().ljust(32, b"-")
        return Idempotency(principal=principal, route="POST /loads", key=(key or uuid4().hex).encode(), body=b"b")

    def load(self, rows="", *, key=None, mode="upsert", upload=None, dataset="trees", **dialect):
        """By default JSON, as it is written; with a dialect CSV or JSON Lines."""
        return accept_load(
            self.office.engine,
            dataset,
            self.name,
            self.key(key),
            mode=mode,
            dialect=LoadDialect(**dialect or {"format": "jsonl"}),
            body=rows if isinstance(rows, bytes) else rows.encode() if dialect else json.dumps(rows).encode(),
            as_array=not dialect,
            upload=upload,
        ).id

    def counts(self, job):
        found = counts(self.office.db, job)
        return found and (found["rows"], found["inserted"], found["updated"], found["deleted"])


@pytest.fixture
def owner(office) -> Owner:
    registry.register_store(office.db, "loaded", "trees")
    office.define(source="loaded", columns=COLUMNS, key=["id"])
    return Owner(office)


def rows(office, order="id"):
    return [tuple(row.values()) for row in office.db.run(f"select * from store.trees order by {order}")]


def test_rows_are_in_the_store_and_a_publication_exports_them(office, owner):
    job = owner.load(
        [{"id": 2, "Art": "Linde"}, {"id": 1, "Art": "Bergahorn", "height": 12.50, "planted": "1987-04-01"}]
    )
    office.work()

    assert office.engine.status(job).state == "LOADED"
    assert owner.counts(job) == (2, 2, 0, 0)
    assert [row[1] for row in rows(office)] == ["Bergahorn", "Linde"]
    published = office.publish()
    office.run(2)
    assert office.engine.status(published).state == "PUBLISHED"
    [version] = registry.versions(office.db, "trees")
    csv = next(file for file in version["files"] if file["format"] == "csv")
    assert office.content(csv["key"]).decode() == (
        "id,species,height,planted\n1,Bergahorn,12.5,1987-04-01\n2,Linde,,\n"
    )
