"""Whether an answer is what openapi.json says of its route: status, media type and JSON."""

import json
import re
from functools import cache
from typing import Any

from chalice import Chalice
from jsonschema import Draft202012Validator

from chalicelib.api import openapi, register
from tests.conftest import PUBLIC_URL


@cache
def description() -> dict[str, Any]:
    """What the API says of itself."""
    return openapi.document(register(Chalice(app_name="described")), PUBLIC_URL)


@cache
def _routes() -> list[tuple[re.Pattern[str], str]]:
    # An exact path before one with parts: /refreshes/schedule is no /refreshes/{job}.
    paths = sorted(description()["paths"], key=lambda path: path.count("{"))
    return [(re.compile(re.sub(r"\\{\w+\\}", "[^/]*", re.escape(path))), path) for path in paths]


@cache
def _validator(path: str, method: str, status: str, media_type: str) -> Draft202012Validator:
    said = description()["paths"][path][method]["responses"][status]["content"][media_type]["schema"]
    return Draft202012Validator(said | {"components": description()["components"]})


def must_be_described(method: str, path: str, answered: Any) -> None:
    """Fail unless the answer is one that the route's description has."""
    route = next((route for pattern, route in _routes() if pattern.fullmatch(path)), None)
    operation = description()["paths"].get(route, {}).get(method.lower())
    if operation is None:
        assert answered.status_code in (404, 405), f"{method} {path} is described nowhere"
        return
    said = operation["responses"]
    status = str(answered.status_code) if str(answered.status_code) in said else "default"
    where = f"{method} {route}: {answered.status_code}"
    if status == "default":
        assert answered.status_code >= 400, f"{where} isn't described"
    if "content" not in said[status]:
        assert not answered.body, where
        return
    media_type = answered.headers["Content-Type"].partition(";")[0]
    assert media_type in said[status]["content"], f"{where} is {media_type}"
    if media_type.endswith("json"):
        fault = next(_validator(route, method.lower(), status, media_type).iter_errors(json.loads(answered.body)), None)
        assert fault is None, f"{where}: {fault and fault.json_path}: {fault and fault.message}"
