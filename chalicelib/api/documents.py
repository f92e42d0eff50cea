"""The JSON documents that answers are made of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from chalice.app import Response

from chalicelib.codes import sentence
from chalicelib.datasets.definition import differences
from chalicelib.db import Row, statements
from chalicelib.engine import Cadence, Failure, Health, Job, Outcome, Pause, Progress, Schedule

from .problems import Problem
from .routing import Call, answer
from .versions import current_version

Document = dict[str, Any]

ASK_AGAIN = "2"
"""Seconds after which the status of an unfinished job may be asked for again."""


def conflict_key(dataset: str) -> str:
    """What a dataset's unfinished publication or withdrawal holds, and its schedule is called."""
    return f"dataset:{dataset}"


def status_document(call: Call, job: Job | Failure) -> Document:
    """The status of a job, as every caller who may see it gets it; the same members whatever became of it."""
    document: Document = {
        "id": job.id,
        "pipeline": job.pipeline,
        "status": job.status,
        "state": job.state,
        "attempts": job.attempts,
        "progress": asdict(Progress()),
        "version": None,
        "accepted_at": job.accepted_at,
        "started_at": job.started_at,
        "finished_at": None,
        "waiting_for": None,
        "failure": None,
        "follow_up": isinstance(job, Job) and job.follow_up,
        "links": _links(call, job),
    }
    if job.pipeline == "load":
        document["counts"] = call.db.one(_sql.find_load, job=job.id)
    if isinstance(job, Failure):
        failure = _coded(job.code, job.details) | {"details": {"step": job.state, **job.details}}
        return document | {"state": "FAILED", "finished_at": job.failed_at, "failure": failure}
    return document | {
        "progress": asdict(job.progress),
        "version": job.version or _coming_version(call, job),
        "finished_at": job.finished_at,
        "waiting_for": _waiting_for(call, job),
    }


def job_item(call: Call, job: Job | Failure) -> Document:
    """A job as an operator sees it in a list: its status, and what it is about."""
    more = {"requeued_as": job.requeued_as} if isinstance(job, Failure) else {"cancel_requested": job.cancel_requested}
    return status_document(call, job) | {"subject": job.subject, "schedule": job.schedule} | more


def failure_items(call: Call, found: Sequence[Failure]) -> list[Document]:
    """Failures as a list has them; ``mended``: what failed was done later, by another job."""
    mended = {row["job_id"] for row in call.db.run(_sql.list_mended, jobs=[failure.id for failure in found])}
    return [job_item(call, failure) | {"mended": failure.id in mended} for failure in found]


def job_document(call: Call, job: Job | Failure, history: Sequence[Row]) -> Document:
    """A job as an operator sees it alone: its bounds and its history too."""
    bounds = ("run_at", "locked_until", "deadline_at", "claim_id")
    events = [{"event": event["kind"], **{k: v for k, v in event.items() if k != "kind"}} for event in history]
    return job_item(call, job) | {name: getattr(job, name, None) for name in bounds} | {"history": events}


def status_answer(call: Call, job: Job | Failure, status: int = 200) -> Response:
    """The status with the header that says when to ask again, as long as asking again makes sense."""
    response = answer(status_document(call, job), status)
    if job.status in ("queued", "running"):
        response.headers["Retry-After"] = ASK_AGAIN
    return response


def accepted(call: Call, job: Job | Failure) -> Response:
    """202: the job that does what was asked for, or did it when it was asked before, and where to look."""
    response = status_answer(call, job, 202)
    response.headers["Location"] = _links(call, job)["self"]
    return response


def cancelled(call: Call, look: Callable[[], Job | Failure], ended: str) -> Response:
    """Cancel a job: 200 when it is, 202 while its worker still has to hear of it; ``ended`` says why it can't be."""
    outcome = call.engine.cancel(look().id)
    found = look()
    if isinstance(found, Failure) and found.code == "cancelled":
        return status_answer(call, found)
    if outcome is not Outcome.REQUESTED:
        raise Problem("conflict", ended)
    return accepted(call, found)


def schedule_document(call: Call, schedule: Schedule) -> Document:
    """When something is started regularly."""
    dataset = schedule.subject.get("dataset")  # a refresh is of none
    return {
        "dataset": dataset,
        "pipeline": schedule.pipeline,
        "cadence": cadence_document(schedule.cadence),
        "next_due_at": schedule.next_due_at,
        "last_due_at": schedule.last_due_at,
        "last_job": schedule.last_job,
        "last_refusal": schedule.last_refusal and _coded(schedule.last_refusal),
        "links": {"self": call.url(f"/datasets/{dataset}/schedule" if dataset else "/refreshes/schedule")},
    }


def cadence_document(cadence: Cadence) -> Document:
    """How often and when, as it is put."""
    return {name: value for name, value in asdict(cadence).items() if value is not None}


def health_document(health: Health) -> Document:
    """Whether everything that must run does, and why not."""
    return {
        "ok": health.ok,
        "reasons": health.reasons,
        "last_finished": _last_finished(health),
        "past_bound": health.past_bound,
        "oldest_snapshot_seconds": round(health.oldest_snapshot),
        "pauses": [asdict(pause) for pause in health.pauses],
        "checked_at": health.checked_at,
    }


def changes_document(before: Mapping[str, Any], after: Mapping[str, Any]) -> Document:
    """What differs between two canonical contents: the fields' names, and each with its two values."""
    found = differences(before, after)
    return {
        "changes": [each.field for each in found],
        "differences": [{"field": each.field, "from": each.before, "to": each.after} for each in found],
    }


def dataset_item(call: Call, row: Row) -> Document:
    """A dataset in a list: its title, and which version is current."""
    address = f"/datasets/{row['id']}"
    return {
        "dataset": row["id"],
        "title": row["title"],
        "version": row["number"]
        and {
            "number": row["number"],
            "issued_at": row["issued_at"],
            "records": row["records"],
            "links": {"self": call.url(f"{address}/versions/{row['number']}")},
        },
        "definition": row["revision"] and {"revision": row["revision"]},
        "links": {"self": call.url(address), "status": call.url(f"{address}/status")},
    }


def dataset_status(call: Call, dataset: str, definition: Row) -> Document:
    """Why isn't it newer? All that has a part in the answer, in one document."""
    health = call.engine.health()
    current = current_version(call, dataset)
    active = call.engine.find(conflict_key(dataset))
    schedule = call.engine.get_schedule(conflict_key(dataset))
    pause = next((pause for pause in health.pauses if pause.pipeline in ("publication", "*")), None)
    failures = call.engine.failures(conflict_key=conflict_key(dataset), limit=1)
    last = call.db.one(_sql.last_changes, dataset=dataset)
    assert last is not None  # an aggregate is always a row
    # What failed before the newest version was mended by it, also where that one is withdrawn by now; and whoever
    # withdrew one since then knew.
    failure = next(iter(failures), None)
    if failure and any(at and at > failure.failed_at for at in (last["issued_at"], last["withdrawn_at"])):
        failure = None
    report = current and call.db.one(_sql.find_report, dataset=dataset, number=current["number"])
    return {
        "dataset": dataset,
        "version": current
        and report
        and {
            "number": current["number"],
            "issued_at": current["issued_at"],
            "age_seconds": int((health.checked_at - current["issued_at"]).total_seconds()),
            "records": current["records"],
            "unpublished_columns": _unpublished_columns(call, current),
            "warnings": {"count": report["count"], "about": report["about"]},
            "characters_removed": report["characters_removed"],
            "definition_revision": current["definition_revision"],
            "links": {"self": call.url(f"/datasets/{dataset}/versions/{current['number']}")},
        },
        "withdrawn": current is None and last["issued_at"] is not None,
        "last_withdrawal": last["withdrawn"] and {"version": last["withdrawn"], "withdrawn_at": last["withdrawn_at"]},
        "definition": {"revision": definition["revision"], "created_at": definition["created_at"]},
        "schedule": schedule and schedule_document(call, schedule),
        "active": active and status_document(call, active),
        "failure": failure and status_document(call, failure) | {"command": _mending(failure, dataset)},
        "loads": call.db.one(_sql.count_loads, dataset=dataset),
        "pause": pause and asdict(pause),
        "last_finished": _last_finished(health),
        "health": {"ok": health.ok, "reasons": health.reasons},
        "checked_at": health.checked_at,
        "links": {"self": call.url(f"/datasets/{dataset}/status"), "dataset": call.url(f"/datasets/{dataset}")},
    }


def _unpublished_columns(call: Call, version: Row) -> list[str]:
    """The source's columns that the version leaves out: new ones, perhaps."""
    publication = call.engine.job(version["job_id"])
    return publication.result.get("unpublished", []) if publication else []


def _mending(failure: Failure, dataset: str) -> str:
    accept = " --accept-drop" if failure.code == "too_few_records" else ""
    return f"leaseway publish {dataset}{accept}"


def _waiting_for(call: Call, job: Job) -> Document | None:
    if job.waiting_for:
        return asdict(job.waiting_for)
    if job.status in ("queued", "running") and job.claim_id is None:
        for pause in call.pauses:
            if pause.pipeline in (job.pipeline, "*"):
                return {"code": "paused", "since": pause.since, "until": pause.until}
    return None


def _coming_version(call: Call, job: Job) -> int | None:
    """The number that a publication's version gets if it commits; a failed one's goes to the next."""
    if job.state != "PERSIST_DATA":
        return None
    row = call.db.one(_sql.next_number, dataset=job.subject["dataset"])
    return int(row["number"]) if row else None


def _coded(code: str, details: Document | None = None) -> Document:
    return {"code": code, "sentence": sentence(code, (details or {}).get("sqlstate"))}


def _links(call: Call, job: Job | Failure) -> Document:
    # Jobs of the machinery itself, such as exports, are looked at by operators alone.
    own = {"publication": "publications", "withdrawal": "withdrawals", "load": "loads", "refresh": "refreshes"}.get(
        job.pipeline, "internal/jobs"
    )
    links = {"self": call.url(f"/{own}/{job.id}")}
    if dataset := job.subject.get("dataset"):
        links["dataset"] = call.url(f"/datasets/{dataset}")
        if isinstance(job, Job) and job.version and job.status == "succeeded":
            links["version"] = call.url(f"/datasets/{dataset}/versions/{job.version}")
    return links


def _last_finished(health: Health) -> Document:
    return {name: run.finished_at for name, run in health.runs.items()}


def pause_document(pause: Pause) -> Document:
    """Which claims are stopped, since when and until when."""
    return asdict(pause)


_sql = statements("chalicelib.api")
