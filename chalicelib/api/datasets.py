"""Datasets: their definitions, and why the published version isn't newer."""

from collections.abc import Mapping
from difflib import get_close_matches
from urllib.parse import urlencode

from chalice.app import Response

from chalicelib import pipelines
from chalicelib.codes import PROBLEMS
from chalicelib.datasets import Fault, Invalid, registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Row, statements
from chalicelib.security import Role

from .documents import changes_document, dataset_item, dataset_status
from .problems import Problem, not_found, parameter
from .requests import DATASET, MOST, choice, flag, invalid, json_object, query, whole
from .routing import Api, Call, answer, unless_known


def register(api: Api) -> None:
    """GET /datasets, DELETE /datasets/{dataset}, PUT and GET …/definition, GET …/status."""

    @api.route("/datasets", "GET", role=Role.READER, query=("status", "limit", "after"), gives="Datasets")
    def get_datasets(call: Call) -> Response:
        """The datasets that the token reaches, by id; ``next`` is the ``after`` of the next page."""
        asked = query(call.request, "status", "limit", "after")
        status = choice(asked, "status", ("published", "unpublished"))
        limit = whole(asked, "limit", 50, most=MOST)
        after = asked.get("after")
        if after is not None and not DATASET.fullmatch(after):
            raise parameter("after", "It must be a dataset's id.")
        published = None if status is None else status == "published"
        found = call.db.run(
            _sql.list_datasets, pattern=call.principal.reach, after=after, published=published, limit=limit + 1
        )
        page = found[:limit]
        following = page[-1]["id"] if len(found) > limit else None
        response = answer({"datasets": [dataset_item(call, row) for row in page], "next": following})
        if following:
            more = urlencode(asked | {"after": following, "limit": limit})
            response.headers["Link"] = f'<{call.url("/datasets")}?{more}>; rel="next"'
        return response

    @api.route("/datasets/{dataset}", "DELETE", role=Role.PUBLISHER, answers=(204,))
    def delete_dataset(call: Call, dataset: str) -> Response:
        """Delete a dataset and its schedule, once all its versions are withdrawn; its id is never given again."""
        query(call.request)
        pipelines.delete_dataset(call.engine, dataset)
        return Response("", status_code=204)

    @api.route(
        "/datasets/{dataset}/definition",
        "PUT",
        role=Role.PUBLISHER,
        answers=(200, 201),
        query=("dry_run",),
        headers=("If-Match", "If-None-Match"),
        body=Definition,
        gives="DefinitionAnswer",
    )
    def put_definition(call: Call, dataset: str) -> Response:
        """Store the definition: 201 for a new dataset, else 200; the same content again stays the same revision.

        With If-Match only over the definition of that ETag, or over any (``*``); with ``If-None-Match: *`` only where
        there is none. With ``dry_run=true`` nothing is stored: 200 with what would change, and over which ETag.
        """
        dry_run = flag(query(call.request, "dry_run"), "dry_run")
        definition = _parsed(call, json_object(call.request))
        with call.db.transaction() as tx:
            if registry.is_deleted(tx, dataset):
                raise Problem("gone", f"Dataset '{dataset}' was deleted; its id is never given again.")
            if registry.hold_source(tx, definition.source) is None:
                raise _unknown_source(definition.source, [source["name"] for source in registry.sources(tx)])
            if dry_run:
                newest = registry.definition(tx, dataset)
                _must_hold(call, newest, definition)
                etag = newest and f'"{newest["etag"]}"'
                newest = newest or {"revision": None, "body": {}}
                found = changes_document(newest["body"], definition.as_json())
                return answer({"dataset": dataset, "revision": newest["revision"], "etag": etag, **found})
            revision, created = registry.put_definition(tx, dataset, definition)
            # What stood there at that very moment, whoever was faster; where it isn't as wanted, nothing is kept.
            _must_hold(call, registry.definition(tx, dataset, revision - created), definition)
        address = call.url(f"/datasets/{dataset}/definition")
        etag = f'"{definition.etag}"'
        document = {"dataset": dataset, "revision": revision, "links": {"self": address}}
        return answer(document, 201 if created and revision == 1 else 200, etag=etag, location=address)

    @api.route(
        "/datasets/{dataset}/definition",
        "GET",
        role=Role.READER,
        answers=(200, 304),
        headers=("If-Match", "If-None-Match"),
        gives="Definition",
    )
    def get_definition(call: Call, dataset: str) -> Response:
        """The newest definition, in its one canonical spelling."""
        query(call.request)
        found = registry.definition(call.db, dataset)
        if found is None:
            raise not_found("There is no definition of this dataset.")
        etag = f'"{found["etag"]}"'
        return unless_known(call, answer(found["body"], etag=etag, cache_control="private, no-cache"))

    @api.route("/datasets/{dataset}/status", "GET", role=Role.READER, gives="DatasetStatus")
    def get_status(call: Call, dataset: str) -> Response:
        """Why isn't it newer? Version, schedule, active job, last failure, pause, and when the machinery last ran."""
        query(call.request)
        definition = registry.definition(call.db, dataset)
        if definition is None and registry.is_deleted(call.db, dataset):
            raise Problem("gone", f"Dataset '{dataset}' was deleted; its id is never given again.")
        if definition is None:
            raise not_found("There is no definition of this dataset.")
        return answer(dataset_status(call, dataset, definition))


def _must_hold(call: Call, current: Row | None, definition: Definition) -> None:
    """Raise a problem where If-Match or If-None-Match doesn't hold for the current definition (RFC 9110, 13.1).

    What If-Match wants to put there already may have been put by this very request, sent again.
    """
    matching, other = call.header("if-match"), call.header("if-none-match")
    if matching is not None and current is None:
        raise Problem("precondition_failed", "There is no definition to be replaced.", field="If-Match")
    if current is None:
        return
    if matching is not None and not _names(matching, current) and current["etag"] != definition.etag:
        raise Problem("precondition_failed", "The definition is another one by now.", field="If-Match")
    if other is not None and _names(other.replace("W/", ""), current):
        raise Problem("precondition_failed", "There is such a definition already.", field="If-None-Match")


def _names(header: str, current: Row) -> bool:
    return header.strip() == "*" or f'"{current["etag"]}"' in [tag.strip() for tag in header.split(",")]


def _parsed(call: Call, body: Mapping[str, object]) -> Definition:
    """The body as a definition; else a problem with all that is wrong with it, a source that isn't registered too."""
    try:
        return Definition.parse(body)
    except Invalid as refused:
        faults = list(refused.faults)
        named = body.get("source")
        if isinstance(named, str) and not any(fault.field == "source" for fault in faults):
            known = [source["name"] for source in registry.sources(call.db)]
            if named not in known:
                faults.append(Fault("source", _unregistered(named, known)))
        raise invalid("invalid_definition", faults) from None


def _unregistered(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    meant = f" Did you mean '{close[0]}'?" if close else ""
    return f"'{name}' is not registered.{meant} {PROBLEMS['unknown_source'].remedy}"


def _unknown_source(name: str, known: list[str]) -> Problem:
    return Problem("unknown_source", _unregistered(name, known), field="source")


_sql = statements("chalicelib.api")
