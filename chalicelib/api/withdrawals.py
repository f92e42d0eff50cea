"""Withdrawals: a version is taken back, answered at once, looked at until it is gone."""

from chalice.app import Response

from chalicelib import pipelines
from chalicelib.security import Role

from .documents import accepted, status_answer
from .problems import not_found
from .requests import job_id, query, version_number
from .routing import Api, Call


def register(api: Api) -> None:
    """DELETE /datasets/{dataset}/versions/{number}, GET /withdrawals/{job}."""

    @api.route(
        "/datasets/{dataset}/versions/{number}",
        "DELETE",
        role=Role.PUBLISHER,
        answers=(202,),
        headers=("Idempotency-Key",),
        gives="Status",
    )
    def delete_version(call: Call, dataset: str, number: str) -> Response:
        """Withdraw a version; 202 with the job that does it, or did it: the same again is the same answer."""
        query(call.request)
        key = call.idempotency({})
        return accepted(call, pipelines.withdraw(call.engine, dataset, version_number(number), key=key))

    @api.route("/withdrawals/{job}", "GET", role=Role.READER, gives="Status")
    def get_withdrawal(call: Call, job: str) -> Response:
        """The status of a withdrawal."""
        query(call.request)
        found = call.engine.status(job_id(job))
        if found is None or found.pipeline != "withdrawal" or not call.principal.reaches(found.subject["dataset"]):
            raise not_found("No withdrawal has this id.")
        return status_answer(call, found)
