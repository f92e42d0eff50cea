"""Pipelines for the engine's tests: steps that do what the test says, else advance."""

from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from chalicelib.engine import Advance, Leased, Pipeline, Refusal, Step

behaviour: dict[str, Callable[[Leased[Any]], Any]] = {}
"""State to what its step does; emptied before each test."""


class Parcel(BaseModel):
    name: str
    revision: int = 1


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
            pin="tests.toy:pin",
        ),
        pipeline("recall", "FETCH_BACK", done="RECALLED", conflict_key="parcel:{subject.name}"),
        pipeline("post", "READ", done="POSTED", request=Letter),
        pipeline("crawl", "CRAWL", done="CRAWLED", queue="fetch", progress_restores_attempts=True),
    )
}
