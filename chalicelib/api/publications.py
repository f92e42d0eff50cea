"""Publications: asked for, answered at once, looked at until they are finished."""

from chalice.app import Response

from chalicelib import pipelines
from chalicelib.security import Role

from .documents import accepted, status_answer
from .problems import not_found
from .requests import flag, job_id, json_object, no_members, query
from .routing import Api, Call


def register(api: Api) -> None:
    """POST /datasets/{dataset}/publications, GET /publications/{job}."""

    @api.route("/datasets/{dataset}/publications", "POST", role=Role.PUBLISHER)
    def post_publication(call: Call, dataset: str) -> Response:
        """Publish a dataset; 202 with the job that does it, which may be one that is active already.

        With ``?accept_drop=true`` however few records there are. The same Idempotency-Key is the same publication.
        """
        accept_drop = flag(query(call.request, "accept_drop"), "accept_drop")
        no_members(json_object(call.request))
        key = call.idempotency({"accept_drop": accept_drop})
        return accepted(call, pipelines.publish(call.engine, dataset, accept_drop=accept_drop, key=key))

    @api.route("/publications/{job}", "GET", role=Role.READER)
    def get_publication(call: Call, job: str) -> Response:
        """The status of a publication."""
        query(call.request)
        found = call.engine.status(job_id(job))
        if found is None or found.pipeline != "publication" or not call.principal.reaches(found.subject["dataset"]):
            raise not_found("No publication has this id.")
        return status_answer(call, found)
