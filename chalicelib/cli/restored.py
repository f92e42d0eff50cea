"""After a restore of the database: what the outside has seen meanwhile, and lifting the database above it."""

import re
from collections.abc import Iterable

import httpx

from chalicelib.catalog.store import FENCE
from chalicelib.codes import sentence
from chalicelib.db import Database, statements
from chalicelib.exports.data_service import RemoteDataService, ServiceAway, ServiceRefused
from chalicelib.exports.storage import client
from chalicelib.settings import Settings

from .remote import Refused

SQL = statements("chalicelib.cli")

ENTRIES = f"""
SELECT ?graph ?fence ?version WHERE {{ GRAPH ?graph {{
  ?graph <{FENCE}> ?fence OPTIONAL {{ ?graph <http://www.w3.org/ns/dcat#version> ?version }}
}} }}
"""
_KEY = re.compile(r"exports/[0-9a-f-]{36}/(\d+)/")


def lift(settings: Settings, database: Database) -> tuple[int, dict[str, int]]:
    """Lift fences and version numbers above the highest found outside; the next fence, and the numbers lifted."""
    from chalicelib.pipelines import context

    fences, versions = seen_by_the_triple_store(settings)
    fences.append(seen_by_object_storage(settings.bucket))
    fences.append(seen_by_targets(database))
    fences.append(seen_by_the_data_service(settings))
    lifted = {
        dataset: number
        for dataset, number in versions.items()
        if database.one(SQL.lift_version, dataset=dataset, number=number)
    }
    return context().engine.restored(max(fences)), lifted


def seen_by_the_triple_store(settings: Settings) -> tuple[list[int], dict[str, int]]:
    """Return every fence in the store, and each dataset's version there."""
    auth = settings.triple_store_auth
    name, _, password = auth.get_secret_value().partition(":") if auth else ("", "", "")
    try:
        answer = httpx.post(
            settings.triple_store_query_url or "",
            content=ENTRIES,
            headers={"Content-Type": "application/sparql-query", "Accept": "application/sparql-results+json"},
            auth=(name, password) if auth else None,
            timeout=60,
        ).raise_for_status()
    except httpx.HTTPError as error:
        raise Refused(f"The triple store must answer, for it knows fences: {type(error).__name__}.") from error
    fences, versions = [0], {}
    for row in answer.json()["results"]["bindings"]:
        fences.append(int(row["fence"]["value"]))
        dataset = row["graph"]["value"].removeprefix(f"{settings.public_url}/datasets/")
        if "version" in row and re.fullmatch(r"[a-z0-9][a-z0-9-]{0,62}", dataset):
            versions[dataset] = int(row["version"]["value"])
    return fences, versions


def seen_by_targets(database: Database) -> int:
    """Return the highest fence in the targets of the newest manifest's refreshes."""
    from chalicelib.engine import PermanentFailure
    from chalicelib.pipelines.refresh.looking import highest_fence
    from chalicelib.pipelines.refresh.target import TargetError

    try:
        return highest_fence(database)
    except (PermanentFailure, TargetError) as error:
        raise Refused(f"The targets of refreshes must answer, for they know fences: {sentence(error.code)}") from error


def seen_by_object_storage(bucket: str) -> int:
    """Return the highest fence in the keys of objects and open uploads."""
    s3 = client()
    objects = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="exports/")
    uploads = s3.get_paginator("list_multipart_uploads").paginate(Bucket=bucket, Prefix="exports/")
    keys: Iterable[str] = [
        *(found["Key"] for page in objects for found in page.get("Contents", [])),
        *(found["Key"] for page in uploads for found in page.get("Uploads", [])),
    ]
    return max((int(match[1]) for key in keys if (match := _KEY.match(key))), default=0)


def seen_by_the_data_service(settings: Settings) -> int:
    """Return the highest fence that a remote one was asked with; the built-in one's are the database's own."""
    if settings.data_service_url is None:
        return 0
    token = settings.data_service_token
    service = RemoteDataService(settings.data_service_url, token.get_secret_value() if token else None, timeout=60)
    try:
        return service.newest_fence()
    except (ServiceAway, ServiceRefused) as error:
        raise Refused(f"The data service must answer, for it knows fences: {error.details['status']}.") from error
