"""Datasets: their definitions, and why the published version isn't newer."""

from difflib import get_close_matches

from chalice.app import Response

from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition, changes
from chalicelib.security import Role

from .documents import dataset_status
from .problems import Problem, not_found
from .requests import flag, json_object, parsed, query
from .routing import Api, Call, answer, unless_known


def register(api: Api) -> None:
    """PUT and GET /datasets/{dataset}/definition, GET /datasets/{dataset}/status."""

    @api.route("/datasets/{dataset}/definition", "PUT", role=Role.PUBLISHER)
    def put_definition(call: Call, dataset: str) -> Response:
        """Store the definition: 201 for a new dataset, else 200; the same content again stays the same revision.

        With ``dry_run=true`` nothing is stored: 200 with the fields that would change.
        """
        dry_run = flag(query(call.request, "dry_run"), "dry_run")
        definition = parsed(Definition, json_object(call.request), "invalid_definition")
        with call.db.transaction() as tx:
            if registry.source(tx, definition.source) is None:
                raise _unknown_source(definition.source, [source["name"] for source in registry.sources(tx)])
            if dry_run:
                newest = registry.definition(tx, dataset) or {"revision": None, "body": {}}
                differing = changes(newest["body"], definition.as_json())
                return answer({"dataset": dataset, "revision": newest["revision"], "changes": differing})
            revision, created = registry.put_definition(tx, dataset, definition)
        address = call.url(f"/datasets/{dataset}/definition")
        etag = f'"{definition.etag}"'
        document = {"dataset": dataset, "revision": revision, "links": {"self": address}}
        return answer(document, 201 if created and revision == 1 else 200, etag=etag, location=address)

    @api.route("/datasets/{dataset}/definition", "GET", role=Role.READER)
    def get_definition(call: Call, dataset: str) -> Response:
        """The newest definition, in its one canonical spelling."""
        query(call.request)
        found = registry.definition(call.db, dataset)
        if found is None:
            raise not_found("There is no definition of this dataset.")
        etag = f'"{found["etag"]}"'
        return unless_known(call, answer(found["body"], etag=etag, cache_control="private, no-cache"))

    @api.route("/datasets/{dataset}/status", "GET", role=Role.READER)
    def get_status(call: Call, dataset: str) -> Response:
        """Why isn't it newer? Version, schedule, active job, last failure, pause, and when the machinery last ran."""
        query(call.request)
        definition = registry.definition(call.db, dataset)
        if definition is None:
            raise not_found("There is no definition of this dataset.")
        return answer(dataset_status(call, dataset, definition))


def _unknown_source(name: str, known: list[str]) -> Problem:
    close = get_close_matches(name, known, n=1)
    hint = f" Did you mean '{close[0]}'?" if close else ""
    return Problem("unknown_source", f"'{name}' is not registered.{hint}", field="source")
