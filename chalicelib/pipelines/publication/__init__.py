"""Publication: a dataset's records as files, its metadata in the catalogue, a version that stays."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from chalicelib import codes
from chalicelib.datasets import registry
from chalicelib.datasets.catalog import catalog
from chalicelib.db import Sql
from chalicelib.engine import Pipeline, Refusal, Step
from chalicelib.settings import settings


class PublicationSubject(BaseModel):
    """What is published: a dataset, as one revision of its definition and one of its source say.

    ``accept_drop``: however few records there are, somebody has said that this is right.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: str
    definition: int
    source: str
    source_revision: int
    accept_drop: bool = False


publication = Pipeline(
    name="publication",
    subject=PublicationSubject,
    conflict_key="dataset:{subject.dataset}",  # shared with withdrawal: they never run together
    steps=[
        Step("GET_DATA", "chalicelib.pipelines.publication.steps:get_data", shape=2),
        Step("PERSIST_DATA", "chalicelib.pipelines.publication.steps:persist_data"),
    ],
    done="PUBLISHED",
    coalesces=True,  # it takes no payload: a second caller may have the first one's job
    stays_true=("accept_drop",),
    pin="chalicelib.pipelines.publication:pin",
    at_requeue="chalicelib.pipelines.publication:may_be_requeued",
    progress_restores_attempts=True,  # a remote file of many invocations may be killed as often as it gets further
)


def pin(tx: Sql, wanted: dict[str, Any]) -> PublicationSubject:
    """The revisions that are current now, for ``{"dataset": id}`` (and accept_drop); Refusal where there are none."""
    if catalog(tx, settings()) is None:
        raise Refusal("catalog_not_configured", None, codes.FAILURES["catalog_not_configured"].remedy)
    dataset = str(wanted["dataset"])
    _see_that_it_stands(tx, dataset)
    definition = registry.definition(tx, dataset)
    if definition is None:
        raise Refusal("not_found", "dataset", f"Dataset '{dataset}' has no definition yet: `leaseway apply` puts one.")
    source = registry.hold_source(tx, definition["body"]["source"])
    if source is None:
        raise Refusal("unknown_source", "source", codes.PROBLEMS["unknown_source"].remedy)
    return PublicationSubject(
        dataset=dataset,
        definition=definition["revision"],
        source=source["name"],
        source_revision=source["revision"],
        accept_drop=bool(wanted.get("accept_drop", False)),
    )


def may_be_requeued(tx: Sql, subject: PublicationSubject) -> None:
    """Refusal where the dataset was deleted since: its entry would come back, until the version is refused."""
    _see_that_it_stands(tx, subject.dataset)


def _see_that_it_stands(tx: Sql, dataset: str) -> None:
    if registry.is_deleted(tx, dataset):  # and it can't be until this is accepted
        raise Refusal("gone", "dataset", f"Dataset '{dataset}' was deleted.")
