"""A small office: one dataset published once, one job at work on it, one failure, one schedule."""

import json
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from chalicelib import pipelines
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.engine import Cadence
from chalicelib.pipelines.refresh import registry as refreshes
from chalicelib.pipelines.refresh.manifest import Manifest
from chalicelib.security import create_token

DEFINITION: dict[str, Any] = {
    "title": {"en": "Flights", "de": "Flüge"},
    "description": {"en": "Every flight of 2013.", "de": "Jeder Flug von 2013."},
    "keywords": {"en": ["aviation"], "de": ["Luftfahrt"]},
    "languages": ["ENG"],
    "publisher": {"name": {"en": "Open Data Office"}, "iri": "https://office.example.org/"},
    "contact": {"name": {"en": "Open data desk"}, "email": "opendata@example.org"},
    "themes": ["TRAN"],
    "licence": "CC0",
    "source": "flights",
    "columns": [{"name": "year", "type": "integer"}, {"name": "origin", "type": "text"}],
}
SHA = "0f" * 32
MEDIA_TYPES = {"csv": "text/csv", "json": "application/json", "xml": "application/xml"}


def files(number: int) -> list[dict[str, Any]]:
    """The files of a version, as they stand in its row."""
    return [
        {"format": name, "key": f"exports/{number}/{name}", "bytes": 1234, "sha256": SHA, "media_type": media_type}
        for name, media_type in MEDIA_TYPES.items()
    ]


@dataclass
class Office:
    """What there is to ask for."""

    active: UUID
    failed: UUID
    withdrawal: UUID
    refresh: UUID
    tokens: dict[str, str]


def documents(base: str, dataset: str) -> dict[str, str]:
    """The stored documents of an entry that says one thing."""
    from chalicelib.catalog.rdf import documents, read

    iri = f"<{base}/datasets/{dataset}>"
    return documents(read(f'{iri} <http://purl.org/dc/terms/title> "Fl\\u00FCge"@de .\n'.encode()))


def register_source(db, name="flights"):
    """Register a connection and a source."""
    with db.transaction() as tx:
        registry.add_connection(tx, "office", "LEASEWAY_SECRET_OFFICE")
        registry.register_source(tx, name, connection="office", relation="public.flights", query=None)


def define(db, dataset="flights", **changes):
    """Put a definition."""
    with db.transaction() as tx:
        return registry.put_definition(tx, dataset, Definition.parse(DEFINITION | changes))


def tokens(db) -> dict[str, str]:
    """A token for everyone who asks."""
    return {
        "wrong": "lw_" + "A" * 43,
        "outside": create_token(db, "outsider@example.org", "publisher", "roads-*"),
        "reader": create_token(db, "reader@example.org", "reader"),
        "publisher": create_token(db, "publisher@example.org", "publisher", "fl*"),
        "operator": create_token(db, "operator@example.org", "operator", "none", days=7),
    }


def call(http, method: str, path: str, token: str | None = None, body: Any = None, **headers: str):
    """One request."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token:
        given["authorization"] = f"Bearer {token}"
    content = b""
    if body is not None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        given.setdefault("content-type", "application/json")
    return http.request(method, path, headers=given, body=content)


def publish(db, engine, clock, dataset="flights", **result):
    """A publication that has finished, without the triple store and object storage."""
    job = pipelines.publish(engine, dataset)
    leased = engine.claim("work", job=job.id, ask=uuid4(), lease=timedelta(seconds=60))
    with leased.transaction() as tx:
        locked = registry.lock_dataset(tx, dataset)
        leased.hold(tx)
        registry.add_version(
            tx,
            dataset=dataset,
            number=locked["last_version"] + 1,
            job=job.id,
            fence=leased.claim_id,
            definition=job.subject["definition"],
            source=job.subject["source"],
            source_revision=job.subject["source_revision"],
            issued_at=clock.now(),
            records=336_776,
            files=files(locked["last_version"] + 1),
            documents=documents(engine.settings.public_url, dataset),
            report={},
            triples=1,
        )
        leased.finish(tx, version=locked["last_version"] + 1, **result)
    return job.id


def withdraw(db, engine, dataset="flights", version=1):
    """A withdrawal that has finished, without the triple store and object storage."""
    job = pipelines.withdraw(engine, dataset, version)
    leased = engine.claim("work", job=job.id, ask=uuid4(), lease=timedelta(seconds=60))
    with leased.transaction() as tx:
        registry.lock_dataset(tx, dataset)
        leased.hold(tx)
        registry.withdraw_version(tx, dataset, version, job.id)
        leased.finish(tx, version=version)
    return job.id


def start_refresh(db, engine):
    """A manifest, and a refresh that waits to do what it says."""
    columns = [{"name": "id", "type": "integer"}]
    target = {"connection": "mart", "table": "mart.flights"}
    contract = {"name": "flights", "source": "flights", "target": target, "columns": columns, "key": ["id"]}
    registry.add_connection(db, "mart", "LEASEWAY_SECRET_MART")
    refreshes.register(db, Manifest.parse({"contracts": [contract]}))
    refreshes.enable(db, "ab" * 32)
    return pipelines.start_refresh(engine).id


def fail(db, engine, dataset="flights", code="source_denied", **details):
    """A publication that has failed for good."""
    job = pipelines.publish(engine, dataset)
    leased = engine.claim("work", job=job.id, ask=uuid4(), lease=timedelta(seconds=60))
    leased.fail(code, details)
    return job.id


def seed(db, engine, clock) -> Office:
    """The small office, as it stands in the morning; flatlands was published and withdrawn."""
    register_source(db)
    define(db)
    define(db, "flatlands")
    publish(db, engine, clock)
    clock.advance("1 hour")
    publish(db, engine, clock, "flatlands")
    withdrawal = withdraw(db, engine, "flatlands")
    failed = fail(db, engine, "flatlands", relation="public.flights")
    clock.advance("1 hour")
    engine.set_schedule("dataset:flights", "publication", {"dataset": "flights"}, Cadence("day", "02:00", "UTC"))
    refresh = start_refresh(db, engine)
    active = pipelines.publish(engine, "flights").id
    engine.pause("refresh", hours=1)
    engine.recover()
    engine.catch_up()
    engine.clean_up(removers={})
    return Office(active, failed, withdrawal, refresh, tokens(db))


def written(db) -> dict[str, list[Any]]:
    """Everything that is written anywhere, to see that nothing was."""
    tables = ("engine.job", "engine.failure", "engine.outbox", "engine.job_event", "engine.pause", "engine.schedule")
    more = ("dataset.dataset", "dataset.definition", "dataset.version", "dataset.catalog", "access.token", "access.act")
    return {table: db.run(f"select t::text from {table} as t order by 1") for table in (*tables, *more)}


def problem(answered, status: int, code: str | None = None, field: str | None = None) -> dict[str, Any]:
    """The answer is a whole problem document."""
    assert answered.status_code == status, answered.body
    if not answered.body:
        return {}
    assert answered.headers["Content-Type"] == "application/problem+json"
    document = json.loads(answered.body)
    assert document["status"] == status
    assert document["type"].endswith(f"/problems/{document['code']}")
    assert document["title"]
    assert code in (None, document["code"])
    assert field in (None, document.get("field"))
    return document
