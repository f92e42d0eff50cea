"""Refreshes: asked for without a word of what they do, which is fixed on the server; and their switch."""

from typing import Any

from chalice.app import Response
from pydantic import BaseModel, ConfigDict

from chalicelib import pipelines
from chalicelib.codes import sentence
from chalicelib.db import Row, Sql
from chalicelib.engine import Failure, Job
from chalicelib.pipelines.refresh import registry
from chalicelib.pipelines.refresh.manifest import Contract, Manifest
from chalicelib.security import Role, record_act

from .documents import accepted, schedule_document, status_document
from .problems import Problem, not_found
from .requests import MOST, job_id, job_parameter, json_object, no_members, query, read_as, whole
from .routing import Api, Call, answer, unavailable
from .schedules import ScheduleBody, read_cadence

SCHEDULE = "refresh"
"""What the schedule of refreshes is called: one, as they have one conflict key."""

COUNTS = ("read", "inserted", "updated", "deleted", "rejected")


class SwitchBody(BaseModel):
    """The package to go back to: the SHA-256 of a zip that is kept in the deployment bucket."""

    model_config = ConfigDict(extra="forbid", strict=True)

    rollback: str


def register(api: Api) -> None:
    """POST and GET /refreshes, their schedule, GET /refreshes/{job}, PUT and DELETE /internal/refresh."""

    @api.route("/refreshes", "POST", role=Role.OPERATOR, answers=(202,), headers=("Idempotency-Key",), gives="Status")
    def post_refresh(call: Call) -> Response:
        """Refresh every target as the newest manifest says; 202 with the job, which may be the one that is active."""
        query(call.request)
        no_members(json_object(call.request))

        def record(tx: Sql, job: Job) -> None:
            record_act(tx, call.principal, "refresh", job=job.id)

        return accepted(call, pipelines.start_refresh(call.engine, key=call.idempotency({}), also=record))

    @api.route("/refreshes", "GET", role=Role.OPERATOR, query=("limit", "after"), gives="Refreshes")
    def get_refreshes(call: Call) -> Response:
        """How fresh each target is, whether refreshes are enabled, and the refreshes, newest first."""
        asked = query(call.request, "limit", "after")
        limit = whole(asked, "limit", 50, most=MOST)
        after = job_parameter(asked, "after")
        newest, switch = registry.manifest(call.db), registry.switch(call.db)
        schedule = call.engine.get_schedule(SCHEDULE)
        manifest = Manifest.parse(newest["body"]) if newest else None
        listed: list[Job | Failure] = [
            *call.engine.jobs(pipeline="refresh", limit=limit, after=after),
            *call.engine.failures(pipeline="refresh", limit=limit, after=after),
        ]
        page = sorted(listed, key=lambda job: job.id, reverse=True)[:limit]
        return answer(
            {
                "enabled": switch["enabled"],
                "enabled_at": switch["changed_at"] if switch["enabled"] else None,
                "rollback": switch["rollback"],
                "schedule": schedule and schedule_document(call, schedule),
                "manifest": newest and {name: newest[name] for name in ("version", "sha256", "registered_at")},
                "targets": [_target(*found) for found in registry.targets(call.db, manifest)] if manifest else [],
                "refreshes": [_item(call, job) for job in page],
                "next": str(page[-1].id) if len(page) == limit else None,
            }
        )

    @api.route("/refreshes/schedule", "PUT", role=Role.OPERATOR, body=ScheduleBody, gives="Schedule")
    def put_refresh_schedule(call: Call) -> Response:
        """Refresh every day, week or month from now on, each time as the newest manifest says then."""
        query(call.request)
        cadence = read_cadence(call)
        with call.db.transaction() as tx:  # the engine's statements run in it too: it is its connection
            found = call.engine.set_schedule(SCHEDULE, "refresh", {}, cadence)
            record_act(tx, call.principal, "refresh_schedule")
        return answer(schedule_document(call, found))

    @api.route("/refreshes/schedule", "GET", role=Role.OPERATOR, gives="Schedule")
    def get_refresh_schedule(call: Call) -> Response:
        """When everything is refreshed next, and was last."""
        query(call.request)
        found = call.engine.get_schedule(SCHEDULE)
        if found is None:
            raise not_found("Refreshes have no schedule.")
        return answer(schedule_document(call, found))

    @api.route("/refreshes/schedule", "DELETE", role=Role.OPERATOR, answers=(204,))
    def delete_refresh_schedule(call: Call) -> Response:
        """Refresh on no schedule any more; an active refresh goes on."""
        query(call.request)
        with call.db.transaction() as tx:
            if not call.engine.delete_schedule(SCHEDULE):
                raise not_found("Refreshes have no schedule.")
            record_act(tx, call.principal, "refresh_schedule_end")
        return Response("", status_code=204)

    @api.route("/refreshes/{job}", "GET", role=Role.OPERATOR, gives="Refresh")
    def get_refresh(call: Call, job: str) -> Response:
        """A refresh: its status, and what became of each contract."""
        query(call.request)
        found = call.engine.status(job_id(job))
        if found is None or found.pipeline != "refresh":
            raise not_found("No refresh has this id.")
        manifest = registry.manifest(call.db, found.subject["manifest"])
        assert manifest is not None  # versions stay for ever
        audits = {row["contract"]: row for row in registry.audits(call.db, found.id)}
        ordered = Manifest.parse(manifest["body"]).in_order()
        contracts = [_contract(contract, audits.get(contract.name)) for contract in ordered]
        response = answer(_item(call, found) | {"contracts": contracts})
        if found.status in ("queued", "running"):
            response.headers["Retry-After"] = "2"
        return response

    @api.route("/internal/refresh", "PUT", role=Role.OPERATOR, body=SwitchBody, gives="Switch")
    def put_switch(call: Call) -> Response:
        """Enable refreshes, with the package to go back to; it must be kept in the deployment bucket."""
        query(call.request)
        rollback = read_as(SwitchBody, json_object(call.request), "bad_json").rollback
        registry.check_digest(rollback)
        if not _is_kept(call, rollback):
            raise Problem("unknown_package", field="rollback")
        with call.db.transaction() as tx:
            registry.enable(tx, rollback)
            record_act(tx, call.principal, "refresh_enable", target=rollback)
        return answer({"enabled": True, "rollback": rollback})

    @api.route("/internal/refresh", "DELETE", role=Role.OPERATOR, answers=(204,))
    def delete_switch(call: Call) -> Response:
        """Disable refreshes: none is accepted, and the one that runs ends before its next contract."""
        query(call.request)
        with call.db.transaction() as tx:
            registry.disable(tx)
            record_act(tx, call.principal, "refresh_disable")
        return Response("", status_code=204)


def _is_kept(call: Call, digest: str) -> bool:
    """Whether the package's zip lies in the deployment bucket; a refusal counts as no."""
    from chalicelib.exports.errors import StorageAway, StorageRefused
    from chalicelib.exports.storage import Store, client

    try:
        return Store(call.settings.deploy_bucket, client).head(f"{digest}.zip") is not None
    except StorageRefused:
        return False
    except StorageAway:
        raise unavailable("The deployment bucket doesn't answer.") from None


def _item(call: Call, job: Job | Failure) -> dict[str, Any]:
    return status_document(call, job) | {"manifest": job.subject["manifest"]}


def _target(contract: Contract, row: Row) -> dict[str, Any]:
    """How fresh a target is; never where its database is."""
    last = row["job_id"] and {
        "refresh": row["job_id"],
        "outcome": row["outcome"],
        "failure": _failure(row["code"]),
        "finished_at": row["finished_at"],
    }
    return {
        "contract": contract.name,
        "target": contract.target.table,
        "refreshed_at": row["refreshed_at"],
        "age_seconds": _whole(row["age"]),
        "watermark": row["watermark"],
        "watermark_age_seconds": _whole(row["watermark_age"]),
        "records": row["records"],
        "last": last,
    }


def _contract(contract: Contract, audit: Row | None) -> dict[str, Any]:
    """What became of a contract; `waiting` as long as nothing has."""
    common = {"contract": contract.name, "target": contract.target.table, "depends_on": contract.depends_on}
    if audit is None:
        return common | {"outcome": "waiting"}
    return common | {
        "outcome": audit["outcome"],
        "failure": _failure(audit["code"], audit["details"]),
        "rows": {name: audit[name] for name in COUNTS},
        "checks": audit["checks"],
        "watermark": audit["watermark"],
        "started_at": audit["started_at"],
        "finished_at": audit["finished_at"],
        "seconds": round((audit["finished_at"] - audit["started_at"]).total_seconds(), 3),
    }


def _failure(code: str | None, details: dict[str, Any] | None = None) -> dict[str, Any] | None:
    if code is None:
        return None
    return {"code": code, "sentence": sentence(code, (details or {}).get("sqlstate"))} | (
        {"details": details} if details else {}
    )


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)
