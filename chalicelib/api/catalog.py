"""The public catalogue: entries, versions and the catalogue itself, as RDF by negotiation or suffix."""

import hashlib
from typing import Any

from chalice.app import HeadersType, Response

from chalicelib.catalog.negotiation import FORMATS, SUFFIXES, VARY, negotiate
from chalicelib.datasets import registry
from chalicelib.datasets.catalog import Catalog, catalog

from .problems import Problem, not_found
from .requests import dataset_id, version_number
from .routing import Api, Call, answer, unless_known
from .versions import CURRENT, all_versions, published, version_record


def register(api: Api) -> None:
    """GET /catalog, /datasets/{dataset}, /datasets/{dataset}/versions[/{number}]."""

    def get_catalog(call: Call) -> Response:
        """The catalogue with the entry of every published dataset."""
        _, suffix = _split(call.request.path)
        media_type = _media_type(call, suffix)
        own = catalog(call.db, call.settings)
        if own is None:
            raise Problem("catalog_not_configured")
        return _document(call, "/catalog", media_type, _whole_catalog(call, own, FORMATS[media_type]), CURRENT)

    looked_up: Any = {"role": None, "answers": (200, 304), "headers": ("If-Match", "If-None-Match")}
    api.route("/catalog", "GET", "HEAD", forms=tuple(FORMATS), **looked_up)(get_catalog)
    for suffix, form in SUFFIXES.items():
        api.route(f"/catalog.{suffix}", "GET", "HEAD", forms=(form,), **looked_up)(get_catalog)

    @api.route("/datasets/{dataset}", "GET", "HEAD", forms=tuple(FORMATS), **looked_up)
    def get_dataset(call: Call, dataset: str) -> Response:
        """The dataset's entry in the catalogue."""
        name, suffix = _split(dataset)
        media_type = _media_type(call, suffix)
        version = published(call, dataset_id(name), document=FORMATS[media_type])
        return _document(call, f"/datasets/{name}", media_type, version["document"], CURRENT)

    @api.route("/datasets/{dataset}/versions", "GET", "HEAD", role=None, gives="Versions")
    def get_versions(call: Call, dataset: str) -> Response:
        """Every version, newest first, withdrawn ones too."""
        found = all_versions(call, dataset_id(dataset))
        records = [version_record(call, version) for version in found]
        return answer({"dataset": dataset, "versions": records}, cache_control=CURRENT)

    @api.route(
        "/datasets/{dataset}/versions/{number}", "GET", "HEAD", forms=tuple(FORMATS), gives="Version", **looked_up
    )
    def get_version(call: Call, dataset: str, number: str) -> Response:
        """A version: its record as JSON, or the entry it was published with as RDF."""
        digits, suffix = _split(number)
        media_type = _media_type(call, suffix)
        version = published(call, dataset_id(dataset), version_number(digits), FORMATS[media_type])
        if media_type == "application/json":
            return answer(version_record(call, version), cache_control=CURRENT, vary=VARY)
        return _document(call, f"/datasets/{dataset}/versions/{digits}", media_type, version["document"], CURRENT)


def _whole_catalog(call: Call, own: Catalog, name: str) -> str:
    from chalicelib.catalog.document import Entry, catalog_document  # rdflib: other routes don't wait for it

    entries = (
        Entry(call.url(f"/datasets/{entry['dataset_id']}"), entry["documents"])
        for entry in registry.current_entries(call.db)
    )
    return catalog_document(call.settings.public_url, own, entries, name).decode()


def _split(part: str) -> tuple[str, str | None]:
    """A path's last part without and with its suffix: neither ids nor numbers hold a full stop."""
    name, dot, suffix = part.partition(".")
    return name, suffix if dot else None


def _media_type(call: Call, suffix: str | None) -> str:
    media_type = negotiate(call.header("accept"), suffix)
    if media_type is None and suffix is not None:
        raise not_found(f"The suffixes are {', '.join(f'.{known}' for known in dict.fromkeys(FORMATS.values()))}.")
    if media_type is None:
        raise Problem("not_acceptable", f"It has {', '.join(FORMATS)}.", headers={"Vary": VARY})
    return media_type


def _document(call: Call, path: str, media_type: str, text: str, cache_control: str) -> Response:
    form = FORMATS[media_type]
    headers: HeadersType = {
        "Content-Type": f"{media_type}; charset=utf-8" if media_type == "text/turtle" else media_type,
        "Content-Location": call.url(f"{path}.{form}"),
        "Etag": f'"{hashlib.sha256(text.encode()).hexdigest()[:32]}-{form}"',
        "Cache-Control": cache_control,
        "Vary": VARY,
    }
    return unless_known(call, Response(text, headers))
