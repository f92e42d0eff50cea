"""Loads: rows pushed into a dataset's store by their owner, who alone gets to see what became of them."""

import hashlib
from typing import TYPE_CHECKING, get_args
from uuid import UUID

from chalice.app import Request, Response
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from chalicelib.engine import Failure, Job
from chalicelib.pipelines.load import (
    MAX_INLINE,
    MAX_UPLOAD,
    MOST_SKIPPED,
    Encoding,
    LoadDialect,
    Mode,
    upload_content,
    upload_key,
)
from chalicelib.security import Role

from .documents import accepted, cancelled, status_answer
from .files import store
from .problems import Problem, not_found, parameter
from .requests import choice, job_id, json_object, no_members, query, read_as, whole
from .routing import Api, Call, answer

if TYPE_CHECKING:
    from chalicelib.pipelines.load.rows import Unfit

KEY = "Idempotency-Key"

DIALECT = ("encoding", "delimiter", "quote", "decimal", "date", "null", "skip")
TAKEN = {
    "encoding": f"It must be one of {', '.join(get_args(Encoding))}.",
    "delimiter": "It must be one character.",
    "quote": "It must be one character, or empty.",
    "decimal": "It must be . or a comma.",
    "date": "It must be made of YYYY, MM and DD, such as DD.MM.YYYY.",
    "null": "It must have at most 100 characters.",
}
FORMATS = {
    "text/csv": "csv",
    "application/jsonl": "jsonl",
    "application/x-ndjson": "jsonl",
    "application/json": "json",
}
"""What a body may be: CSV, JSON Lines, or one JSON array of objects."""

PUT_WITHIN = 900
"""Seconds for which an upload's address is good. Cleanup removes an object twice, so much apart: a PUT that was still
on its way the first time is over by the second. What comes even later the bucket's lifecycle removes."""


class UploadBody(BaseModel):
    """What is going to be uploaded."""

    model_config = ConfigDict(extra="forbid", strict=True)

    bytes: int = Field(gt=0, le=MAX_UPLOAD)
    sha256: str | None = Field(
        None,
        pattern="^[0-9a-fA-F]{64}$",
        description="Of the file, in hexadecimal digits: no other is taken, and an Idempotency-Key goes by it.",
    )


def register(api: Api) -> None:
    """POST /datasets/{dataset}/loads and …/uploads, GET and DELETE /loads/{job}."""

    @api.route(
        "/datasets/{dataset}/loads",
        "POST",
        role=Role.PUBLISHER,
        answers=(202,),
        query=("mode", "upload", "format", *DIALECT),
        headers=(KEY,),
        required=(KEY,),
        media_types=tuple(FORMATS),
        gives="LoadStatus",
    )
    def post_load(call: Call, dataset: str) -> Response:
        """Load rows, all of them or none; 202 with the job that does it.

        They are the body: a CSV, JSON Lines, or a JSON array of objects, at most 3 MB; or an upload, named by
        ``upload`` and ``format``. ``mode=replace`` makes them the whole content. Rows that can't be loaded are named
        by number, column and reason, and nothing is written. An Idempotency-Key is needed: with it the same load
        sent again is one, by way of another upload of the same file, too, where their ``sha256`` was told.
        """
        from chalicelib.pipelines.load.accepting import accept_load
        from chalicelib.pipelines.load.rows import Unfit

        asked = query(call.request, "mode", "upload", "format", *DIALECT)
        mode: Mode = "replace" if choice(asked, "mode", ("upsert", "replace")) == "replace" else "upsert"
        upload = _upload(asked.get("upload"))
        body = _body(call.request)
        if upload is not None and body.strip():
            raise Problem("bad_request", "It names an upload, so its body must be empty.")
        form = _format(call.request, asked, uploaded=upload is not None)
        dialect = _dialect(asked, form, uploaded=upload is not None)
        content = str(upload and upload_content(upload))
        said = dialect.model_dump() | {"mode": mode, "form": form, "upload": content}
        key = call.idempotency(said | {"body": hashlib.sha256(body).hexdigest()})
        if key is None:
            raise Problem(
                "bad_request", "A load needs one: a new one for each, the same when it is sent again.", field=KEY
            )
        try:
            job = accept_load(
                call.engine,
                dataset,
                call.principal.name,
                key,
                mode=mode,
                dialect=dialect,
                body=body,
                as_array=form == "json",
                upload=upload,
            )
        except Unfit as unfit:
            raise _problem(unfit) from None
        return accepted(call, job)

    @api.route(
        "/datasets/{dataset}/loads/uploads",
        "POST",
        role=Role.PUBLISHER,
        answers=(201,),
        body=UploadBody,
        gives="UploadDocument",
    )
    def post_upload(call: Call, dataset: str) -> Response:
        """Begin an upload: 201 with an address that takes a PUT of so many bytes for a quarter of an hour.

        With a ``sha256`` it takes that file alone. Its id is good for one load within a day; what is never loaded is
        deleted.
        """
        from chalicelib.pipelines.load.accepting import begin_upload

        query(call.request)
        body = json_object(call.request)
        if isinstance(size := body.get("bytes"), int) and size > MAX_UPLOAD:
            raise Problem(
                "bad_json",
                f"It has {size} bytes; at most {MAX_UPLOAD} are taken. Split the file into several loads, or have an"
                " operator register it, or a table, as the source: `leaseway source upload` or `register`.",
                field="bytes",
            )
        wanted = read_as(UploadBody, body, "bad_json")
        sha256 = bytes.fromhex(wanted.sha256) if wanted.sha256 else None
        upload, expires_at = begin_upload(call.engine, dataset, call.principal.name, wanted.bytes, sha256)
        url, headers = store().presign_put(upload_key(upload), wanted.bytes, PUT_WITHIN, sha256)
        document = {
            "id": upload,
            "url": url,
            "method": "PUT",
            "headers": headers,
            "bytes": wanted.bytes,
            "expires_at": expires_at,
        }
        return answer(document, 201)

    @api.route("/loads/{job}", "GET", role=Role.READER, gives="LoadStatus")
    def get_load(call: Call, job: str) -> Response:
        """The status of a load, with what it did, for its owner alone."""
        query(call.request)
        return status_answer(call, _load(call, job))

    @api.route("/loads/{job}", "DELETE", role=Role.PUBLISHER, answers=(200, 202), gives="LoadStatus")
    def delete_load(call: Call, job: str) -> Response:
        """Cancel a load: 200 when it is cancelled, 202 while its worker still has to hear of it."""
        query(call.request)
        no_members(json_object(call.request))
        return cancelled(call, lambda: _load(call, job), "It has ended already.")


def _load(call: Call, job: str) -> Job | Failure:
    """The load, if it is the caller's own; to everybody else it doesn't exist."""
    from chalicelib.pipelines.load.accepting import owner

    found = call.engine.status(job_id(job))
    if (
        found is None
        or found.pipeline != "load"
        or not call.principal.reaches(found.subject["dataset"])
        or found.subject["owner"] != owner(call.principal.name).hex()
    ):
        raise not_found("No load of yours has this id.")
    return found


def _upload(text: str | None) -> UUID | None:
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError:
        raise parameter("upload", "It must be an upload's id: POST …/loads/uploads gives one.") from None


def _body(request: Request) -> bytes:
    try:
        raw = request.raw_body or b""
    except ValueError:  # base64 that isn't any
        raise Problem("bad_request", "The body can't be read.") from None
    body = raw.encode() if isinstance(raw, str) else raw
    if len(body) > MAX_INLINE:
        raise Problem(
            "payload_too_large",
            f"It has {len(body)} bytes; at most {MAX_INLINE} are taken. Upload it: POST …/loads/uploads.",
        )
    return body


def _format(request: Request, asked: dict[str, str], *, uploaded: bool) -> str:
    """Csv, jsonl or json: of an upload as it is said, of a body by its media type."""
    if uploaded:
        form = choice(asked, "format", ("csv", "jsonl"))
        if form is None:
            raise parameter("format", "Say what was uploaded: csv or jsonl.")
        return form
    if "format" in asked:
        raise parameter("format", "It goes with `upload`; a body's is its Content-Type.")
    media_type, *parameters = (part.strip().lower() for part in (request.headers.get("content-type") or "").split(";"))
    charset = [p.partition("=")[2].strip('" ') for p in parameters if p.startswith("charset")]
    if media_type not in FORMATS or charset not in ([], ["utf-8"], ["utf8"]):
        raise Problem("unsupported_media_type", f"Send one of {', '.join(FORMATS)}, in UTF-8.", field="Content-Type")
    return FORMATS[media_type]


def _dialect(asked: dict[str, str], form: str, *, uploaded: bool) -> LoadDialect:
    given: dict[str, str | int] = {name: asked[name] for name in DIALECT if name in asked}
    for name in given:
        if name == "encoding" and not uploaded:
            raise parameter(name, "A body is UTF-8; upload a file of another encoding.")
        if name != "encoding" and form != "csv":
            raise parameter(name, "It goes with CSV.")
    given["skip"] = whole(asked, "skip", 0, least=0, most=MOST_SKIPPED)
    try:
        return LoadDialect.model_validate({**given, "format": "csv" if form == "csv" else "jsonl"})
    except ValidationError as error:
        fault = error.errors(include_input=False, include_url=False, include_context=False)[0]
        name = str(fault["loc"][0]) if fault["loc"] else "delimiter"
        ours = fault["type"] == "value_error"
        raise parameter(name, f"{fault['msg'].removeprefix('Value error, ')}." if ours else TAKEN[name]) from None


def _problem(unfit: "Unfit") -> Problem:
    """What is wrong with the rows, to the one who sent them: the values too."""
    rows = [{name: value for name, value in vars(bad).items() if value is not None} for bad in unfit.bad]
    more = {"rows": rows, "records": unfit.details["records"]} if rows else {}
    if unfit.code in ("unknown_column", "missing_column"):
        return Problem(unfit.code, field=unfit.named)
    return Problem(unfit.code, unfit.named, **more)
