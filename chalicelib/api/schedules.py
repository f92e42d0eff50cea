"""Schedules: when a dataset is published without anyone asking."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from chalice.app import Response
from pydantic import BeforeValidator

from chalicelib.datasets import registry
from chalicelib.datasets.definition import Document
from chalicelib.engine import Cadence
from chalicelib.engine.cadence import InvalidCadence
from chalicelib.security import Role

from .documents import cadence_document, conflict_key, schedule_document
from .problems import not_found
from .requests import flag, invalid, json_object, parsed, query
from .routing import Api, Call, answer


def _day(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, str | int | None):
        raise ValueError("must be a weekday's name, like monday, or a day of the month from 1 to 31")
    return value


class ScheduleBody(Document):
    """When a dataset is published."""

    examples: ClassVar[Mapping[str, str]] = {
        "every": "day, week or month",
        "at": 'a local time, e.g. "02:00"',
        "zone": "a zone of the IANA list, e.g. Europe/Berlin",
    }

    every: Literal["day", "week", "month"]
    at: str
    on: Annotated[str | int | None, BeforeValidator(_day)] = None
    zone: str = "UTC"


def read_cadence(call: Call) -> Cadence:
    """The cadence that a request's body holds; raises a problem that names the field."""
    body = parsed(ScheduleBody, json_object(call.request), "invalid_schedule")
    try:
        return Cadence(**body.model_dump())
    except InvalidCadence as wrong:
        raise invalid("invalid_schedule", [(wrong.field, f": {wrong.detail}")]) from None


def register(api: Api) -> None:
    """PUT, GET and DELETE /datasets/{dataset}/schedule, GET /schedules."""

    @api.route(
        "/datasets/{dataset}/schedule",
        "PUT",
        role=Role.PUBLISHER,
        query=("dry_run",),
        body=ScheduleBody,
        gives="ScheduleAnswer",
    )
    def put_schedule(call: Call, dataset: str) -> Response:
        """Publish a dataset every day, week or month from now on; with ``dry_run=true`` only check the cadence."""
        dry_run = flag(query(call.request, "dry_run"), "dry_run")
        cadence = read_cadence(call)
        if dry_run:
            return answer({"dataset": dataset, "cadence": cadence_document(cadence)})
        if registry.definition(call.db, dataset) is None:
            raise not_found("There is no definition of this dataset.")
        found = call.engine.set_schedule(conflict_key(dataset), "publication", {"dataset": dataset}, cadence)
        return answer(schedule_document(call, found))

    @api.route("/datasets/{dataset}/schedule", "GET", role=Role.READER, gives="Schedule")
    def get_schedule(call: Call, dataset: str) -> Response:
        """When a dataset is published next, and was last."""
        query(call.request)
        found = call.engine.get_schedule(conflict_key(dataset))
        if found is None:
            raise not_found("The dataset has no schedule.")
        return answer(schedule_document(call, found))

    @api.route("/datasets/{dataset}/schedule", "DELETE", role=Role.PUBLISHER, answers=(204,))
    def delete_schedule(call: Call, dataset: str) -> Response:
        """Stop publishing a dataset on a schedule; an active publication goes on."""
        query(call.request)
        if not call.engine.delete_schedule(conflict_key(dataset)):
            raise not_found("The dataset has no schedule.")
        return Response("", status_code=204)

    @api.route("/schedules", "GET", role=Role.READER, gives="Schedules")
    def get_schedules(call: Call) -> Response:
        """Every schedule that the token reaches; that of refreshes, which is of no dataset, is the operators'."""
        query(call.request)
        found = [schedule_document(call, schedule) for schedule in call.engine.schedules()]
        operator = call.principal.role is Role.OPERATOR
        mine = [s for s in found if (call.principal.reaches(s["dataset"]) if s["dataset"] else operator)]
        return answer({"schedules": mine})
