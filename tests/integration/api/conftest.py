"""The app as API Gateway calls it, over a real database; nothing of the engine is replaced."""

import pytest
from chalice import Chalice
from chalice.test import Client

from chalicelib import api, pipelines
from chalicelib import settings as configuration
from chalicelib.api import files
from chalicelib.engine import Engine
from tests.conftest import PUBLIC_URL

from .describing import must_be_described
from .seeding import Office, seed

ENVIRONMENT = {
    "PUBLIC_URL": PUBLIC_URL,
    "FILES_URL": "http://localhost:4001",
    "LEASEWAY_HASH_KEY": "a key that only the tests know, 32 characters",
    "LEASEWAY_FILES_ACCESS_KEY_ID": "signer",
    "LEASEWAY_FILES_SECRET_ACCESS_KEY": "CANARY-signing-secret",
    "LEASEWAY_CATALOG_TITLE": '{"en": "Open data"}',
    "LEASEWAY_CATALOG_DESCRIPTION": '{"en": "All that is open."}',
    "LEASEWAY_CATALOG_PUBLISHER_NAME": '{"en": "Open Data Office"}',
    "LEASEWAY_CATALOG_PUBLISHER_IRI": "https://office.example.org/",
    "LEASEWAY_CATALOG_LICENCE": "http://publications.europa.eu/resource/authority/licence/CC0",
    "LEASEWAY_CATALOG_HOMEPAGE": "https://office.example.org/data",
    "AWS_DEFAULT_REGION": "eu-central-1",
}


@pytest.fixture
def environment(monkeypatch, dsn):
    """The environment of a function process."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATABASE_URL", dsn)
    configuration.settings.cache_clear()
    files.store.cache_clear()
    yield monkeypatch
    configuration.settings.cache_clear()
    files.store.cache_clear()


@pytest.fixture
def engine(environment, database, clock, queues):
    """An engine with the product's pipelines."""
    return Engine(
        database,
        pipelines.PIPELINES,
        configuration.settings(),
        queues,
        monotonic=clock.monotonic,
        sleep=clock.sleep,
    )


@pytest.fixture
def app(environment, database, engine):
    """The app with every route."""
    made = Chalice(app_name="leaseway-test")
    api.register(made)
    context = pipelines.Context(configuration.settings(), database, engine)
    environment.setattr(pipelines, "context", lambda: context)
    return made


@pytest.fixture
def http(app, monkeypatch):
    """Requests to the app; each answer, whatever is tested, is one that openapi.json describes."""
    client = Client(app).http
    request = client.request

    def described(method, path, headers=None, body=b""):
        answered = request(method, path, headers, body)
        if method not in ("HEAD", "OPTIONS"):
            must_be_described(method, path.partition("?")[0], answered)
        return answered

    monkeypatch.setattr(client, "request", described)
    return client


@pytest.fixture
def office(database, engine, clock) -> Office:
    """One dataset published once, one publication at work, one failure, one schedule, a token for everybody."""
    return seed(database, engine, clock)
