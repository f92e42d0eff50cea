"""Refresh: tables elsewhere made anew from their sources, as an approved manifest says; a request only says when."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from chalicelib import codes
from chalicelib.db import Sql
from chalicelib.engine import Pipeline, Refusal, Step

from . import registry


class RefreshSubject(BaseModel):
    """What is done: a version of the manifest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    manifest: int


refresh = Pipeline(
    name="refresh",
    subject=RefreshSubject,
    conflict_key="refresh",  # one at a time in an environment
    steps=[Step("REFRESH", "chalicelib.pipelines.refresh.steps:refresh_targets")],
    done="REFRESHED",
    coalesces=True,  # who asks again gets the one that runs; after a newer manifest was registered, that one too
    pin="chalicelib.pipelines.refresh:pin",
    at_requeue="chalicelib.pipelines.refresh:may_be_requeued",
)


def pin(tx: Sql, wanted: dict[str, Any]) -> RefreshSubject:
    """The newest version of the manifest; Refusal where refreshes aren't enabled, or there is none."""
    _see_that_it_is_enabled(tx)
    newest = registry.manifest(tx)
    if newest is None:
        raise Refusal("no_manifest", None, codes.PROBLEMS["no_manifest"].remedy)
    return RefreshSubject(manifest=newest["version"])


def may_be_requeued(tx: Sql, subject: RefreshSubject) -> None:
    """Refusal where refreshes aren't enabled; else it is done as its own version of the manifest says, once more."""
    _see_that_it_is_enabled(tx)


def _see_that_it_is_enabled(tx: Sql) -> None:
    if not registry.switch(tx)["enabled"]:
        raise Refusal("not_enabled", None, codes.FAILURES["not_enabled"].remedy)
