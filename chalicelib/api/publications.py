"""Publications: asked for, answered at once, looked at until they are finished."""

from chalice.app import Response

from chalicelib import pipelines
from chalicelib.engine import Failure, Job
from chalicelib.security import Role

from .documents import accepted, cancelled, status_answer
from .problems import not_found
from .requests import flag, job_id, json_object, no_members, query
from .routing import Api, Call


def register(api: Api) -> None:
    """POST /datasets/{dataset}/publications, GET and DELETE /publications/{job}."""

    @api.route(
        "/datasets/{dataset}/publications",
        "POST",
        role=Role.PUBLISHER,
        answers=(202,),
        query=("accept_drop",),
        headers=("Idempotency-Key",),
        gives="Status",
    )
    def post_publication(call: Call, dataset: str) -> Response:
        """Publish a dataset; 202 with the job that does it, which may be one that is active already.

        With ``?accept_drop=true`` however few records there are. The same Idempotency-Key is the same publication.
        """
        accept_drop = flag(query(call.request, "accept_drop"), "accept_drop")
        no_members(json_object(call.request))
        key = call.idempotency({"accept_drop": accept_drop})
        return accepted(call, pipelines.publish(call.engine, dataset, accept_drop=accept_drop, key=key))

    @api.route("/publications/{job}", "GET", role=Role.READER, gives="Status")
    def get_publication(call: Call, job: str) -> Response:
        """The status of a publication."""
        query(call.request)
        return status_answer(call, _publication(call, job))

    @api.route("/publications/{job}", "DELETE", role=Role.PUBLISHER, answers=(200, 202), gives="Status")
    def delete_publication(call: Call, job: str) -> Response:
        """Cancel a publication: 200 when it is cancelled, 202 while its worker still has to hear of it."""
        query(call.request)
        return cancelled(
            call, lambda: _publication(call, job), "It has ended already; a published version is withdrawn."
        )


def _publication(call: Call, job: str) -> Job | Failure:
    found = call.engine.status(job_id(job))
    if found is None or found.pipeline != "publication" or not call.principal.reaches(found.subject["dataset"]):
        raise not_found("No publication has this id.")
    return found
