import pytest

from chalicelib.engine import Engine
from tests import toy


@pytest.fixture
def lossy(dsn, clock, settings, queues):
    """An engine whose connection loses requests and replies."""
    toy.behaviour.clear()
    database = toy.Lossy(dsn)
    yield Engine(database, toy.PIPELINES, settings, queues, monotonic=clock.monotonic, sleep=clock.sleep)
    database.close()
