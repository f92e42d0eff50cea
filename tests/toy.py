"""Pipelines for the engine's tests: steps that do what the test says, else advance."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from pydantic import BaseModel

from chalicelib.db import Database, DatabaseAway, Row, Transaction
from chalicelib.engine import Advance, Engine, Leased, Pipeline, Refusal, Step

behaviour: dict[str, Callable[[Leased[Any]], Any]] = {}
"""State to what its step does; emptied before each test."""


class Parcel(BaseModel):
    name: str
    revision: int = 1
    insured: bool = False


class Letter(BaseModel):
    text: str


def step(job: Leased[Any]) -> Any:
    return behaviour.get(job.state, lambda _: Advance())(job)


def pin(tx: Any, wanted: dict[str, Any]) -> Parcel:
    """The current revision of a parcel."""
    if wanted["name"].startswith("gone"):
        raise Refusal("not_found", "name", "There is no such parcel.")
    return Parcel(name=wanted["name"], revision=7)


def pipeline(name: str, *states: str, done: str, **more: Any) -> Pipeline:
    steps = [Step(state, "tests.toy:step") for state in states]
    return Pipeline(name=name, subject=Parcel, steps=steps, done=done, **more)


PIPELINES = {
    found.name: found
    for found in (
        pipeline(
            "delivery",
            "PACK",
            "SHIP",
            done="DELIVERED",
            conflict_key="parcel:{subject.name}",
            coalesces=True,
            stays_true=("insured",),
            pin="tests.toy:pin",
        ),
        pipeline("tour", "LOAD", "DRIVE", "UNLOAD", done="TOURED"),
        pipeline("recall", "FETCH_BACK", done="RECALLED", conflict_key="parcel:{subject.name}"),
        pipeline("post", "READ", done="POSTED", request=Letter),
        pipeline("ferry", "BOARD", done="FERRIED", order_key="ferry:{subject.name}"),
        pipeline("crawl", "CRAWL", done="CRAWLED", queue="fetch", progress_restores_attempts=True),
    )
}


class Crash(BaseException):
    """The worker dies here: nothing in the engine may see it."""


def crash(job: Leased[Any]) -> Any:
    raise Crash


def take(engine: Engine, job: UUID | None = None, *, queue: str = "work", seconds: float = 300) -> Leased[Any] | None:
    """Claim as a worker of its own."""
    return engine.claim(queue, job=job, ask=uuid4(), lease=timedelta(seconds=seconds))


def work(engine: Engine, job: UUID | None = None, *, queue: str = "work", left: float = 300) -> str:
    """One invocation; a crash leaves the job as it is."""
    try:
        return str(engine.work(queue, job=job, until=lambda: left).outcome)
    except Crash:
        return "crashed"


def kinds(engine: Engine, job: UUID) -> list[str]:
    return [event["kind"] for event in engine.history(job)]


class Lossy(Database):
    """A connection that loses what the test says: requests (never arrived) or replies (arrived, unheard)."""

    def __init__(self, dsn: str):
        super().__init__(dsn)
        self.requests: list[str] = []
        self.replies: list[str] = []
        self.commits = 0

    def run(self, sql: str, /, **params: object) -> list[Row]:
        if sql in self.requests:
            self.requests.remove(sql)
            raise DatabaseAway
        rows = super().run(sql, **params)
        if sql in self.replies:
            self.replies.remove(sql)
            raise DatabaseAway
        return rows

    def one(self, sql: str, /, **params: object) -> Row | None:
        rows = self.run(sql, **params)
        return rows[0] if rows else None

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        with super().transaction() as tx:
            yield tx
        if self.commits:
            self.commits -= 1
            raise DatabaseAway
