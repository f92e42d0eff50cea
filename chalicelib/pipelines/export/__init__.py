"""Export, the built-in data service: the records of a source as files in object storage.

It is a pipeline of the same engine, so an export is worked on, recovered or finished like everything else.
"""

from uuid import UUID

from pydantic import BaseModel, ConfigDict

from chalicelib.engine import Pipeline, Step


class ExportSubject(BaseModel):
    """What is exported: for whom (the key), by which revisions."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: UUID
    dataset: str
    definition: int
    source: str
    source_revision: int


export = Pipeline(
    name="export",
    subject=ExportSubject,
    conflict_key="export:{subject.key}",
    steps=[Step("EXPORT", "chalicelib.pipelines.export.steps:export_records")],
    done="EXPORTED",
    coalesces=True,
    # An export of many invocations may be killed as often as it gets further (docs/decisions/resumable-exports.md).
    progress_restores_attempts=True,
    part_of="publication",
)
