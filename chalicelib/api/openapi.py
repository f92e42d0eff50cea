"""What the API is, as OpenAPI 3.1: made of the routes, what they declare, and the pydantic models of what they take."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from html import escape
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, RootModel
from pydantic.json_schema import models_json_schema

from chalicelib.codes import PROBLEMS
from chalicelib.datasets.catalog import Catalog
from chalicelib.datasets.definition import Definition
from chalicelib.settings import VERSION

from .requests import MOST
from .routing import Route
from .schedules import ScheduleBody

_UUID = {"type": "string", "format": "uuid"}
_ROWS = {"type": "array", "items": {"type": "object"}}
_FLAG = {"type": "string", "enum": ["true", "false"]}
PATH = {
    "dataset": {"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,62}$"},
    "number": {"type": "integer", "minimum": 1},
    "job": _UUID,
    "name": {"type": "string"},
}
QUERY: dict[str, dict[str, Any]] = {
    "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "default": 50},
    "after": {"type": "string"},
    "status": {"type": "string"},
    "pipeline": {"type": "string"},
    "code": {"type": "string"},
    "dry_run": _FLAG,
    "accept_drop": _FLAG,
    "mode": {"type": "string", "enum": ["upsert", "replace"], "default": "upsert"},
    "upload": _UUID,
    "format": {"type": "string", "enum": ["csv", "jsonl"]},
    "encoding": {"type": "string", "default": "utf-8"},
    "delimiter": {"type": "string", "default": ","},
    "quote": {"type": "string", "default": '"'},
    "decimal": {"type": "string", "enum": [".", ","], "default": "."},
    "date": {"type": "string", "default": "YYYY-MM-DD"},
    "null": {"type": "string", "default": ""},
    "skip": {"type": "integer", "minimum": 0, "maximum": 1000, "default": 0},
}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Progress(_Model):
    """How far a job is; the total is null where it isn't known."""

    records: int
    bytes: int
    total: int | None


class WaitingFor(_Model):
    """What a job waits for."""

    code: str
    since: datetime
    until: datetime | None


class JobFailure(_Model):
    """Why a job failed: a stable code, its sentence, and details that hold nothing private."""

    code: str
    sentence: str
    details: dict[str, Any]


class Status(_Model):
    """The status of a job; the same members whatever became of it."""

    id: UUID
    pipeline: str
    status: Literal["queued", "running", "succeeded", "failed"]
    state: str
    attempts: int = Field(ge=0, le=3)
    progress: Progress
    version: int | None
    accepted_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    waiting_for: WaitingFor | None
    failure: JobFailure | None
    follow_up: bool = Field(description="Whether something newer was asked for meanwhile, which this one's end starts.")
    links: dict[str, str]


class LoadCounts(_Model):
    """What a load did; rows that were there already, as they are, count as neither."""

    rows: int
    inserted: int
    updated: int
    deleted: int


class LoadStatus(Status):
    """The status of a load, with what it did once it is done."""

    counts: LoadCounts | None


class UploadDocument(BaseModel):
    """An upload: put the file at ``url``, with its Content-Length and these headers, then load ``id``."""

    id: UUID
    url: str
    method: str
    headers: dict[str, str]
    bytes: int
    expires_at: datetime


class Change(_Model):
    """A field that differs, and its values in their canonical spelling; null is what isn't said."""

    field: str
    before: Any = Field(alias="from")
    after: Any = Field(alias="to")


class Changes(_Model):
    """What differs from what is stored."""

    changes: list[str] = Field(description="The names of the fields: title.de, columns.year.")
    differences: list[Change]


class DefinitionAnswer(_Model):
    """What has become of a definition; of a dry run what would."""

    dataset: str
    revision: int | None = Field(description="Null where there is none yet, in a dry run.")
    etag: str | None = Field(None, description="In a dry run: what it was compared with, as If-Match takes it.")
    links: dict[str, str] | None = Field(None, description="Where it was stored.")
    changes: list[str] | None = Field(None, description="In a dry run: the names of the fields that would change.")
    differences: list[Change] | None = Field(None, description="In a dry run: each of them with its values.")


class JobItem(Status):
    """A job or a failure in an operator's list, with what it is about."""

    subject: dict[str, Any]
    schedule: str | None
    counts: LoadCounts | None = Field(None, description="Of a load.")
    cancel_requested: bool = Field(False, description="Of a job.")
    requeued_as: UUID | None = Field(None, description="Of a failure.")


class Event(BaseModel):
    """Something that happened to a job, with more that depends on what it was."""

    event: str
    at: datetime


class JobDocument(JobItem):
    """A job or a failure with its lease, its bounds and its history; a finished one has only the last."""

    run_at: datetime | None
    locked_until: datetime | None
    deadline_at: datetime | None
    claim_id: int | None
    history: list[Event]


class FailureItem(JobItem):
    """A failure in a list."""

    mended: bool = Field(description="Whether what failed was done later, by another job.")


class FailureDocument(JobDocument):
    """A failure with its history."""

    mended: bool = Field(description="Whether what failed was done later, by another job.")


class Jobs(_Model):
    """A page of jobs."""

    jobs: list[JobItem]
    next: UUID | None


class Failures(_Model):
    """A page of failures."""

    failures: list[FailureItem]
    next: UUID | None


class Coded(_Model):
    """A stable code and its sentence."""

    code: str
    sentence: str


class CheckedSchedule(_Model):
    """The cadence that a dry run has found good."""

    dataset: str
    cadence: ScheduleBody


class Schedule(_Model):
    """When something is started regularly; a refresh is of no dataset."""

    dataset: str | None
    pipeline: str
    cadence: ScheduleBody
    next_due_at: datetime
    last_due_at: datetime | None
    last_job: UUID | None
    last_refusal: Coded | None
    links: dict[str, str]


class ScheduleAnswer(RootModel[Schedule | CheckedSchedule]):
    """The schedule, or of a dry run what was checked."""


class Schedules(_Model):
    """The schedules."""

    schedules: list[Schedule]


class Pause(_Model):
    """Claims of a pipeline, or of all (``*``), are stopped until then."""

    pipeline: str
    since: datetime
    until: datetime


class Verdict(_Model):
    """Whether everything that must run does, and why not."""

    ok: bool
    reasons: list[str]


class Machinery(Verdict):
    """When each part last finished, and what there is to know besides."""

    last_finished: dict[str, datetime | None]
    past_bound: int
    oldest_snapshot_seconds: int
    pauses: list[Pause]
    checked_at: datetime


class Health(RootModel[Machinery | Verdict]):
    """Whether the machinery runs; while the database is away, the verdict alone."""


class File(_Model):
    """A file of a version."""

    name: str
    format: str
    media_type: str
    compress: str | None = Field(None, description="The media type of what wraps it, if something does.")
    bytes: int
    sha256: str
    url: str


class Version(_Model):
    """What is kept of a version for ever; a withdrawn one has no files."""

    dataset: str
    version: int
    issued_at: datetime
    withdrawn_at: datetime | None
    current: bool
    definition_revision: int
    publication: UUID
    records: int
    files: list[File]
    links: dict[str, str]


class Versions(_Model):
    """The versions of a dataset, newest first."""

    dataset: str
    versions: list[Version]


class CurrentVersion(_Model):
    """The current version in a list."""

    number: int
    issued_at: datetime
    records: int
    links: dict[str, str]


class Revision(_Model):
    """The newest revision of a definition."""

    revision: int


class DatasetItem(_Model):
    """A dataset in a list; the title is by language."""

    dataset: str
    title: dict[str, str] | None
    version: CurrentVersion | None
    definition: Revision | None
    links: dict[str, str]


class Datasets(_Model):
    """A page of datasets."""

    datasets: list[DatasetItem]
    next: str | None


class Warnings(_Model):
    """What the check of an entry advises: how many warnings, and what they are about."""

    count: int
    about: list[str]


class VersionStatus(CurrentVersion):
    """The current version, how old it is, and how many characters its XML lacks, which can't hold them."""

    age_seconds: int
    unpublished_columns: list[str]
    warnings: Warnings
    characters_removed: int
    definition_revision: int


class DefinitionStatus(Revision):
    """The newest definition."""

    created_at: datetime


class MendableFailure(Status):
    """The last failure, and the command that mends it."""

    command: str


class UnfinishedLoads(_Model):
    """The loads that wait or run, and since when the oldest is there."""

    unfinished: int
    since: datetime | None


class LastWithdrawal(_Model):
    """The version that was withdrawn last."""

    version: int
    withdrawn_at: datetime


class DatasetStatus(_Model):
    """Why the version isn't newer."""

    dataset: str
    version: VersionStatus | None
    withdrawn: bool
    last_withdrawal: LastWithdrawal | None
    definition: DefinitionStatus
    schedule: Schedule | None
    active: Status | None
    failure: MendableFailure | None
    loads: UnfinishedLoads
    pause: Pause | None
    last_finished: dict[str, datetime | None]
    health: Verdict
    checked_at: datetime
    links: dict[str, str]


class FailureOfContract(Coded):
    """Why a contract failed."""

    details: dict[str, Any] = {}


class LastRun(_Model):
    """What became of the last run that reached a target."""

    refresh: UUID
    outcome: str
    failure: FailureOfContract | None
    finished_at: datetime


class Target(_Model):
    """How fresh a target is."""

    contract: str
    target: str
    refreshed_at: datetime | None
    age_seconds: int | None
    watermark: datetime | None
    watermark_age_seconds: int | None
    records: int | None
    last: LastRun | None


class ManifestRevision(_Model):
    """The newest manifest."""

    version: int
    sha256: str
    registered_at: datetime


class RefreshItem(Status):
    """A refresh in a list, with its manifest's version."""

    manifest: int


class Refreshes(_Model):
    """How fresh each target is, and a page of refreshes."""

    enabled: bool
    enabled_at: datetime | None
    rollback: str | None
    schedule: Schedule | None
    manifest: ManifestRevision | None
    targets: list[Target]
    refreshes: list[RefreshItem]
    next: UUID | None


class ContractOutcome(_Model):
    """What became of a contract; while it waits, no more than that."""

    contract: str
    target: str
    depends_on: list[str]
    outcome: str
    failure: FailureOfContract | None = None
    rows: dict[str, int | None] | None = None
    checks: Any = Field(None, description="What the checks found.")
    watermark: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    seconds: float | None = None


class Refresh(RefreshItem):
    """A refresh, and what became of each contract."""

    contracts: list[ContractOutcome]


class Switch(_Model):
    """Refreshes are enabled, with the package to go back to."""

    enabled: bool
    rollback: str


class BadRow(BaseModel):
    """A row that can't be loaded, the first column that doesn't fit, and why."""

    row: int
    column: str
    reason: str
    value: str | None = None


class ProblemDocument(BaseModel):
    """An error (RFC 9457): a stable code, the field and the remedy."""

    type: str
    title: str
    status: int
    code: str
    detail: str | None = None
    field: str | None = None
    errors: list[dict[str, str]] | None = None
    rows: list[BadRow] | None = Field(None, description="The first hundred rows that can't be loaded.")
    records: int | None = Field(None, description="How many can't.")


GIVEN: dict[str, type[BaseModel]] = {
    model.__name__: model
    for model in (
        Status,
        LoadStatus,
        UploadDocument,
        DefinitionAnswer,
        Changes,
        Definition,
        Catalog,
        JobItem,
        JobDocument,
        FailureDocument,
        Jobs,
        Failures,
        Schedule,
        ScheduleAnswer,
        Schedules,
        Pause,
        Health,
        Version,
        Versions,
        Datasets,
        DatasetStatus,
        Refreshes,
        Refresh,
        Switch,
    )
}
"""What a route may say that it gives: by name, for nobody needs the models but this page."""


def document(routes: Sequence[Route], url: str) -> dict[str, Any]:
    """The description of the routes, at PUBLIC_URL."""
    models: set[type[BaseModel]] = {ProblemDocument, *GIVEN.values()}
    models |= {route.body for route in routes if route.body}
    names, schemas = models_json_schema(
        [(model, "validation") for model in sorted(models, key=lambda model: model.__name__)],
        ref_template="#/components/schemas/{model}",
    )
    refs = {model: schema for (model, _), schema in names.items()}
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        for method in route.methods:
            if method != "HEAD":
                paths.setdefault(route.path, {})[method.lower()] = _operation(route, method, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Leaseway",
            "version": VERSION,
            "description": "Publishes data: acknowledged at once, always finished.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": url}],
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(route: Route, method: str, refs: Mapping[Any, Any]) -> dict[str, Any]:
    summary, _, more = (route.view.__doc__ or "").partition("\n")
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": PATH[name]}
        for name in re.findall(r"\{(\w+)\}", route.path)
    ]
    parameters += [{"name": name, "in": "query", "schema": QUERY[name]} for name in route.query]
    parameters += [
        {"name": name, "in": "header", "required": name in route.required, "schema": {"type": "string"}}
        for name in route.headers
    ]
    gives = {"application/json": refs[GIVEN[route.gives]]} if route.gives else {}
    content = {form: {"schema": gives.get(form, {})} for form in route.forms}
    problem = {"application/problem+json": {"schema": refs[ProblemDocument]}}
    said: dict[str, Any] = {"description": summary}
    operation: dict[str, Any] = {
        "operationId": f"{method.lower()}{re.sub(r'[^A-Za-z0-9]+', '_', route.path).rstrip('_')}",
        "tags": [route.path.strip("/").split("/")[0].split(".")[0]],
        "summary": summary,
        "parameters": parameters,
        "responses": {
            **{
                str(status): said | ({} if status in (204, 304, 307) else {"content": content})
                for status in route.answers
            },
            "default": {"description": "A problem document.", "content": problem},
        },
    }
    if more.strip():
        operation["description"] = " ".join(more.split())
    if route.body:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": refs[route.body]}}}
    if route.media_types:
        taken = {name: {"schema": _ROWS if name == "application/json" else {}} for name in route.media_types}
        operation["requestBody"] = {"required": False, "content": taken}
    if route.role is not None:
        operation["security"] = [{"token": []}]
        operation["x-role"] = route.role.name.lower()
    return operation


def page(described: Mapping[str, Any]) -> str:
    """The same for people: one page without a script, or anything from elsewhere."""
    parts = []
    for path, operations in described["paths"].items():
        for method, operation in operations.items():
            role = operation.get("x-role", "everybody")
            rows = "".join(
                f"<li><code>{escape(each['name'])}</code> ({each['in']})"
                f" <code>{escape(json.dumps(each['schema']))}</code></li>"
                for each in operation["parameters"]
            )
            body = operation.get("requestBody")
            takes = f"<p>Takes <code>{escape(_name(body))}</code>.</p>" if body else ""
            answers = ", ".join(status for status in operation["responses"] if status != "default")
            parts.append(
                f'<section><h2><code>{method.upper()}</code> {escape(path)}</h2><p class="role">{role}; {answers}</p>'
                f"<p>{escape(operation['summary'])} {escape(operation.get('description', ''))}</p>{takes}"
                f"<ul>{rows}</ul></section>"
            )
    schemas = "".join(
        f"<section><h2>{escape(name)}</h2><pre>{escape(json.dumps(schema, indent=2))}</pre></section>"
        for name, schema in described["components"]["schemas"].items()
    )
    codes = "".join(
        f"<tr><td><code>{name}</code><td>{code.status}<td>{escape(f'{code.sentence}. {code.remedy}')}</tr>"
        for name, code in PROBLEMS.items()
    )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Leaseway: the API</title>'
        '<meta name="viewport" content="width=device-width"><style>'
        "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
        "section{border-top:1px solid #ccc}h2{font-size:1.1rem}.role{color:#555}pre{overflow:auto;background:#f5f5f5}"
        "td{padding:.2rem .6rem;vertical-align:top}</style><h1>Leaseway: the API</h1>"
        '<p>For machines: <a href="openapi.json">openapi.json</a>. A token goes into the header'
        " <code>Authorization: Bearer TOKEN</code>.</p>"
        f"{''.join(parts)}<h1>Codes of problems</h1><table>{codes}</table><h1>Schemas</h1>{schemas}</html>"
    )


def _name(body: Mapping[str, Any]) -> str:
    schema = body["content"]["application/json"]["schema"]
    return str(schema["$ref"]).rpartition("/")[2] if "$ref" in schema else ", ".join(body["content"])
