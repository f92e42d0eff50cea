"""For operators: every job and failure, and the acts that mend them, each committed with the record of who did it."""

from chalice.app import Response
from pydantic import BaseModel, ConfigDict, Field

from chalicelib import pipelines
from chalicelib.codes import FAILURES
from chalicelib.datasets.catalog import Catalog, applied, catalog
from chalicelib.datasets.catalog import put_catalog as put
from chalicelib.db import Sql
from chalicelib.engine import Failure, Job, Outcome
from chalicelib.security import Role, record_act

from .documents import accepted, changes_document, failure_items, job_document, job_item, pause_document
from .problems import Problem, not_found
from .requests import MOST, choice, flag, job_id, job_parameter, json_object, no_members, parsed, query, read_as, whole
from .routing import Api, Call, answer


class PauseBody(BaseModel):
    """Which pipeline, and for how long."""

    model_config = ConfigDict(extra="forbid", strict=True)

    pipeline: str = "*"
    hours: float = Field(24, gt=0, le=168)


def register(api: Api) -> None:
    """Everything below /internal."""
    paged = ("limit", "after")

    @api.route("/internal/jobs", "GET", role=Role.OPERATOR, query=("pipeline", "status", *paged), gives="Jobs")
    def get_jobs(call: Call) -> Response:
        """Jobs, newest first; ``next`` is the ``after`` of the next page."""
        asked = query(call.request, "pipeline", "status", "limit", "after")
        limit = whole(asked, "limit", 50, most=MOST)
        found = call.engine.jobs(
            pipeline=choice(asked, "pipeline", pipelines.PIPELINES),
            status=choice(asked, "status", ("queued", "running", "succeeded")),
            limit=limit,
            after=job_parameter(asked, "after"),
        )
        return answer({"jobs": [job_item(call, job) for job in found], "next": _next(found, limit)})

    @api.route("/internal/jobs/{job}", "GET", role=Role.OPERATOR, gives="JobDocument")
    def get_job(call: Call, job: str) -> Response:
        """A job or a failure, with its lease, its bounds and its history."""
        query(call.request)
        found = call.engine.status(job_id(job))
        if found is None:
            raise not_found("No job has this id.")
        return answer(job_document(call, found, call.engine.history(found.id)))

    @api.route("/internal/jobs/{job}/cancel", "POST", role=Role.OPERATOR, answers=(200, 202), gives="JobItem")
    def post_cancel(call: Call, job: str) -> Response:
        """Cancel a job: at once if nobody owns it, else at its owner's next heartbeat; a finish may win."""
        query(call.request)
        no_members(json_object(call.request))
        wanted = job_id(job)

        def record(tx: Sql, outcome: Outcome) -> None:
            record_act(tx, call.principal, "cancel", job=wanted, target=outcome)

        outcome = call.engine.cancel(wanted, also=record)
        found = call.engine.status(wanted)
        if found is None:
            raise not_found("No job has this id.")
        if outcome in (Outcome.FINISHED, Outcome.FAILED):  # there was nothing to do; that it was asked for is known
            record(call.db, outcome)
        return answer(job_item(call, found), 202 if outcome is Outcome.REQUESTED else 200)

    @api.route("/internal/failures", "GET", role=Role.OPERATOR, query=("pipeline", "code", *paged), gives="Failures")
    def get_failures(call: Call) -> Response:
        """Failures, newest first; ``next`` is the ``after`` of the next page."""
        asked = query(call.request, "pipeline", "code", "limit", "after")
        limit = whole(asked, "limit", 50, most=MOST)
        found = call.engine.failures(
            pipeline=choice(asked, "pipeline", pipelines.PIPELINES),
            code=choice(asked, "code", FAILURES),
            limit=limit,
            after=job_parameter(asked, "after"),
        )
        return answer({"failures": failure_items(call, found), "next": _next(found, limit)})

    @api.route("/internal/failures/{job}", "GET", role=Role.OPERATOR, gives="FailureDocument")
    def get_failure(call: Call, job: str) -> Response:
        """A failure: its code, its sentence, its details and its history."""
        query(call.request)
        found = call.engine.failure(job_id(job))
        if found is None:
            raise not_found("No failure has this id.")
        [item] = failure_items(call, [found])
        return answer(job_document(call, found, call.engine.history(found.id)) | item)

    @api.route(
        "/internal/failures/{job}/requeue",
        "POST",
        role=Role.OPERATOR,
        answers=(202,),
        headers=("Idempotency-Key",),
        gives="Status",
    )
    def post_requeue(call: Call, job: str) -> Response:
        """Run a failure's job again: a new job about the same subject; the same Idempotency-Key is the same new job."""
        query(call.request)
        no_members(json_object(call.request))
        wanted = job_id(job)

        def record(tx: Sql, made: Job) -> None:
            record_act(tx, call.principal, "requeue", job=wanted, target=str(made.id))

        key = call.idempotency({})
        return accepted(call, call.engine.once(key, lambda tx: call.engine.requeue(wanted, tx=tx, also=record).job))

    @api.route("/internal/failures/{job}", "DELETE", role=Role.OPERATOR, answers=(204,))
    def delete_failure(call: Call, job: str) -> Response:
        """Forget a failure."""
        query(call.request)
        wanted = job_id(job)
        with call.db.transaction() as tx:  # the engine's statements run in it too: it is its connection
            if not call.engine.purge(wanted):
                raise not_found("No failure has this id.")
            record_act(tx, call.principal, "purge", job=wanted)
        return Response("", status_code=204)

    @api.route("/internal/catalog", "PUT", role=Role.OPERATOR, query=("dry_run",), body=Catalog, gives="Changes")
    def put_catalog(call: Call) -> Response:
        """Let the catalogue say this of itself, in the settings' place; with ``dry_run=true`` only say what changes."""
        dry_run = flag(query(call.request, "dry_run"), "dry_run")
        wanted = parsed(Catalog, json_object(call.request), "invalid_catalog")
        before = applied(call.db)
        if not dry_run:
            with call.db.transaction() as tx:
                put(tx, wanted)
                record_act(tx, call.principal, "catalog")
        return answer(changes_document(before.as_json() if before else {}, wanted.as_json()))

    @api.route("/internal/catalog", "GET", role=Role.OPERATOR, gives="Catalog")
    def get_catalog(call: Call) -> Response:
        """What the catalogue says of itself, in its one canonical spelling; as RDF it is at /catalog."""
        query(call.request)
        found = catalog(call.db, call.settings)
        if found is None:
            raise Problem("catalog_not_configured")
        return answer(found.as_json())

    @api.route("/internal/pause", "PUT", role=Role.OPERATOR, body=PauseBody, gives="Pause")
    def put_pause(call: Call) -> Response:
        """Claim no more jobs of a pipeline and of its parts, or of all (``*``), until the pause ends or is ended."""
        query(call.request)
        wanted = read_as(PauseBody, json_object(call.request), "bad_json")
        _refuse_parts("bad_json", wanted.pipeline)
        if wanted.pipeline not in call.engine.pausable():
            raise Problem("bad_json", f"It must be one of {', '.join(call.engine.pausable())}.", field="pipeline")
        with call.db.transaction() as tx:
            made = call.engine.pause(wanted.pipeline, hours=wanted.hours)
            record_act(tx, call.principal, "pause", target=wanted.pipeline)
        return answer(pause_document(made))

    @api.route("/internal/pause", "DELETE", role=Role.OPERATOR, answers=(204,), query=("pipeline",))
    def delete_pause(call: Call) -> Response:
        """End the pause of a pipeline and of its parts, or the one of all (``*``)."""
        asked = query(call.request, "pipeline")
        _refuse_parts("bad_parameter", asked.get("pipeline"))
        pipeline = choice(asked, "pipeline", call.engine.pausable()) or "*"
        with call.db.transaction() as tx:
            if not call.engine.resume(pipeline):
                raise not_found("It isn't paused.")
            record_act(tx, call.principal, "resume", target=pipeline)
        return Response("", status_code=204)


def _refuse_parts(code: str, pipeline: str | None) -> None:
    known = pipelines.PIPELINES.get(pipeline or "")
    if known and known.part_of:
        raise Problem(code, f"It is paused, and goes on, with what it is a part of: {known.part_of}.", field="pipeline")


def _next(found: list[Job] | list[Failure], limit: int) -> str | None:
    return str(found[-1].id) if len(found) == limit else None
