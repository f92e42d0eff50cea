"""An office with a source, object storage and a triple store, all real, on the test clock; each can be away."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from uuid import UUID

import boto3
import psycopg
import pytest
from moto.server import ThreadedMotoServer

from chalicelib import pipelines, settings
from chalicelib.catalog.store import GraphStore
from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Database
from chalicelib.engine import Engine
from chalicelib.pipelines import entries
from chalicelib.pipelines.export import removal as export_removal
from chalicelib.pipelines.export import steps as export_steps
from chalicelib.pipelines.load import removal as load_removal
from chalicelib.pipelines.load import steps as load_steps
from chalicelib.pipelines.publication import removal
from chalicelib.pipelines.publication import steps as publication_steps
from chalicelib.pipelines.withdrawal import steps as withdrawal_steps
from localstack.postgresql import free_ports

from .refreshing import Team, assemble

DEFINITION = {
    "title": {"en": "Trees", "de": "Bäume"},
    "description": {"en": "Every tree of the city.", "de": "Jeder Baum der Stadt."},
    "keywords": {"en": ["trees"], "de": ["Bäume"]},
    "languages": ["en"],
    "publisher": {"name": {"en": "Office"}, "iri": "https://office.example.org/id"},
    "contact": {"name": {"en": "Open data desk"}, "email": "opendata@example.org"},
    "themes": ["ENVI"],
    "licence": "CC0",
    "source": "trees",
    "columns": [{"name": "id", "type": "integer"}, {"name": "name", "type": "text"}],
}
CATALOG = {
    "LEASEWAY_CATALOG_TITLE": '{"en": "Open data"}',
    "LEASEWAY_CATALOG_DESCRIPTION": '{"en": "What the city knows."}',
    "LEASEWAY_CATALOG_PUBLISHER_NAME": '{"en": "City"}',
    "LEASEWAY_CATALOG_PUBLISHER_IRI": "https://city.example.org/id",
    "LEASEWAY_CATALOG_LICENCE": "http://publications.europa.eu/resource/authority/licence/CC0",
    "LEASEWAY_CATALOG_HOMEPAGE": "https://city.example.org/data",
}
BUCKET = "leaseway-files"
CLOSED = "http://127.0.0.1:9"
"""The discard port: nobody listens there."""


class Killed(BaseException):
    """A worker that dies here: no handler of the product sees it."""


class Office:
    """Publishes trees; `run` lets time go by with a worker and the scheduled functions at work."""

    def __init__(self, engine, clock, queues, database, monkeypatch):
        self.engine: Engine = engine
        self.clock = clock
        self.queues = queues
        self.db = database
        self._set = monkeypatch.setenv

    def context(self) -> pipelines.Context:
        """The functions' own, over this test's engine; settings are read anew when they change."""
        return pipelines.Context(settings.settings(), self.db, self.engine)

    def new_processes(self, dsn: str) -> None:
        """All of the functions' processes have ended, and others take their place."""
        self.db.close()
        self.db = Database(dsn)
        forget()
        self.engine = Engine(
            self.db,
            pipelines.PIPELINES,
            settings.settings(),
            self.queues,
            monotonic=self.clock.monotonic,
            sleep=self.clock.sleep,
        )

    def define(self, **changes) -> int:
        with self.db.transaction() as tx:
            return registry.put_definition(tx, "trees", Definition.parse(deepcopy(DEFINITION) | changes))[0]

    def publish(self, *, accept_drop: bool = False) -> UUID:
        return pipelines.publish(self.engine, "trees", accept_drop=accept_drop).id

    def work(self) -> None:
        """All that is due now; a worker that is killed stays dead, and another one goes on."""
        while True:
            try:
                self.engine.work_on("work", [], lambda: 900.0)
            except Killed:
                continue
            return

    def run(self, minutes: int, *, clean_up: bool = True) -> None:
        for minute in range(minutes):
            self.work()
            self.engine.recover()
            self.engine.catch_up()
            if clean_up and minute % 15 == 14:
                self.clean_up()
            self.clock.advance("1 min")
        self.work()

    def clean_up(self) -> dict[str, int]:
        return self.engine.clean_up(removers=pipelines.REMOVERS)

    def files(self) -> list[str]:
        found = boto3.client("s3").list_objects_v2(Bucket=BUCKET)
        return sorted(each["Key"] for each in found.get("Contents", []))

    def uploads(self) -> list[str]:
        return [each["Key"] for each in boto3.client("s3").list_multipart_uploads(Bucket=BUCKET).get("Uploads", [])]

    def content(self, key: str) -> bytes:
        return boto3.client("s3").get_object(Bucket=BUCKET, Key=key)["Body"].read()

    def point(self, **variables: str) -> None:
        """Set variables of the functions' environment; the next step sees them."""
        for name, value in variables.items():
            self._set(name, value)
        forget()


def forget() -> None:
    for cached in (settings.settings, export_steps.storage, entries.graph_store):
        cached.cache_clear()


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)  # a line a request, and a page for each 500
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def oxigraph_url() -> Iterator[str]:
    (port,) = free_ports(1)
    program = Path(sys.executable).with_name("oxigraph")
    process = subprocess.Popen([program, "serve", "--bind", f"127.0.0.1:{port}"], stderr=subprocess.PIPE, text=True)
    assert process.stderr
    assert any("istening" in line for line in process.stderr), "Oxigraph didn't start"
    yield f"http://127.0.0.1:{port}"
    process.kill()
    process.wait()
    process.stderr.close()


@pytest.fixture
def office(database, clock, queues, dsn, admin_database_dsn, s3_url, oxigraph_url, monkeypatch) -> Iterator[Office]:
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        admin.execute("drop schema if exists src cascade")
        admin.execute("create schema src")
        admin.execute("create table src.trees (id int primary key, name text)")
        admin.execute("insert into src.trees select n, 'tree ' || n from generate_series(1, 100) n")
        admin.execute("grant usage on schema src to leaseway_app")
        admin.execute("grant select on src.trees to leaseway_app")
    for name, value in {
        **CATALOG,
        "DATABASE_URL": dsn,
        "PUBLIC_URL": "http://localhost:4000",
        "LEASEWAY_TRIPLE_STORE_UPDATE_URL": f"{oxigraph_url}/update",
        "LEASEWAY_TRIPLE_STORE_QUERY_URL": f"{oxigraph_url}/query",
        "LEASEWAY_HASH_KEY": "a key that only the tests know, 32 characters",
        "LEASEWAY_SECRET_SRC": dsn,
        "AWS_ENDPOINT_URL": s3_url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the region of the test that made it
    forget()
    engine = Engine(
        database, pipelines.PIPELINES, settings.settings(), queues, monotonic=clock.monotonic, sleep=clock.sleep
    )
    office = Office(engine, clock, queues, database, monkeypatch)
    loading = (load_steps, load_removal)
    for module in (entries, export_removal, export_steps, publication_steps, withdrawal_steps, removal, *loading):
        monkeypatch.setattr(module, "context", office.context)
    s3 = boto3.client("s3")
    s3.create_bucket(Bucket=BUCKET)
    registry.add_connection(database, "src", "LEASEWAY_SECRET_SRC")
    registry.register_source(database, "trees", "src", "src.trees", None)
    office.store = GraphStore(f"{oxigraph_url}/update", f"{oxigraph_url}/query")
    office.define()
    yield office
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_url)
    for key in office.files():
        s3.delete_object(Bucket=BUCKET, Key=key)
    for upload in s3.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
        s3.abort_multipart_upload(Bucket=BUCKET, Key=upload["Key"], UploadId=upload["UploadId"])
    # The graph keeps its fence for ever, but the next test's dataset is another one of the same name.
    office.store._send(f"{oxigraph_url}/update", "application/sparql-update", "DROP ALL")
    forget()


@pytest.fixture
def team(office, dsn, admin_database_dsn, monkeypatch) -> Iterator[Team]:
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:
        yield assemble(office, dsn, admin, monkeypatch)
