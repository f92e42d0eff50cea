"""What comes in over HTTP, read strictly: a body, a path or a parameter that isn't meant is refused, never guessed."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from chalice.app import Request
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from chalicelib.datasets import Invalid
from chalicelib.datasets.definition import Document

from .problems import Problem, not_found, parameter

MAX_BODY = 1024 * 1024
"""Bytes of the largest body: a definition with 1,600 columns, described in two languages, has about 600 KiB."""

MOST = 200
"""Items of a page at most."""

MAX_DEPTH = 32
MAX_FAULTS = 100

DATASET = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_JOB = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")


def dataset_id(text: str) -> str:
    """A dataset's id from the path."""
    if not DATASET.fullmatch(text):
        raise not_found("A dataset's id has lower-case letters, digits and hyphens, at most 63.")
    return text


def job_id(text: str) -> UUID:
    """A job's id from the path."""
    if not _JOB.fullmatch(text):
        raise not_found("A job's id is a UUID in lower case.")
    return UUID(text)


def version_number(text: str) -> int:
    """A version's number from the path."""
    if not _NUMBER.fullmatch(text):
        raise not_found("Versions are numbered 1, 2, 3 and so on.")
    return int(text)


def query(request: Request, *known: str) -> dict[str, str]:
    """The query's parameters, each of them known and given once."""
    found: dict[str, str] = {}
    for name, given in (request.to_original_event()["multiValueQueryStringParameters"] or {}).items():
        if name not in known:
            listed = ", ".join(known) if known else "none"
            raise parameter(_shown(name), f"It isn't a parameter of this address; known: {listed}.")
        if len(given) != 1:
            raise parameter(name, "It is given more than once.")
        found[name] = given[0]
    return found


def whole(parameters: Mapping[str, str], name: str, default: int, *, least: int = 1, most: int) -> int:
    """A parameter that is a whole number from ``least`` (0 or 1) to ``most``."""
    text = parameters.get(name)
    if text is None:
        return default
    if not (_NUMBER.fullmatch(text) or text == str(least)) or int(text) > most:
        raise parameter(name, f"It must be a whole number from {least} to {most}.")
    return int(text)


def choice(parameters: Mapping[str, str], name: str, known: Iterable[str]) -> str | None:
    """A parameter that is one of the known words."""
    text = parameters.get(name)
    if text is not None and text not in known:
        raise parameter(name, f"It must be one of {', '.join(sorted(known))}.")
    return text


def flag(parameters: Mapping[str, str], name: str) -> bool:
    """A parameter that is true or false; false without it."""
    return choice(parameters, name, ("true", "false")) == "true"


def job_parameter(parameters: Mapping[str, str], name: str) -> UUID | None:
    """A parameter that is a job's id."""
    text = parameters.get(name)
    if text is None:
        return None
    if not _JOB.fullmatch(text):
        raise parameter(name, "It must be a job's id: a UUID in lower case.")
    return UUID(text)


def json_object(request: Request) -> dict[str, object]:
    """The body as a JSON object; an empty body is the empty object."""
    text = _text(request)
    if not text.strip(" \t\r\n"):
        return {}
    _must_be_json(request)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite)
    except Problem:
        raise
    except RecursionError:
        raise Problem("bad_json", f"It is nested deeper than {MAX_DEPTH} levels.") from None
    except json.JSONDecodeError as error:
        raise Problem("bad_json", f"It breaks off being JSON at line {error.lineno}, column {error.colno}.") from None
    except ValueError:  # a number of more than 4,300 digits
        raise Problem("bad_json", "A number in it has too many digits.") from None
    if not isinstance(value, dict):
        raise Problem("bad_json", "It must be a JSON object.")
    _check_texts(value, "", 1)
    return value


def read_as[M: BaseModel](model: type[M], body: Mapping[str, object], code: str) -> M:
    """The body as a model; else a problem of this code that names each wrong field, never its value."""
    try:
        return model.model_validate(body)
    except ValidationError as error:
        faults = error.errors(include_input=False, include_url=False)
        raise invalid(code, [(".".join(map(str, each["loc"])), _sentence(model, each)) for each in faults]) from None


def _sentence(model: type[BaseModel], fault: ErrorDetails) -> str:
    """Pydantic's finding, in our words where its own name no remedy."""
    if fault["type"] == "missing":
        return "is missing"
    if fault["type"] == "extra_forbidden":
        return f"is no field here; it takes {', '.join(model.model_fields)}"
    if fault["type"] == "literal_error":
        return f": It takes {fault['ctx']['expected']}.".replace("'", "")
    if fault["type"] == "string_type":
        return ": It takes a text."
    if fault["type"] == "string_pattern_mismatch":
        return f": It takes a text that matches {fault['ctx']['pattern']}."
    return f": {fault['msg']}"


def parsed[D: Document](document: type[D], body: Mapping[str, object], code: str) -> D:
    """The body as a definition or the like; else a problem of this code that names each wrong field."""
    try:
        return document.parse(body)
    except Invalid as refused:
        raise invalid(code, refused.faults) from None


def invalid(code: str, faults: Sequence[tuple[str, str]]) -> Problem:
    """A problem with the first wrong field and what is wrong with it; with all of them where there are more."""
    errors = [{"field": _shown(field), "detail": detail.removeprefix(": ")} for field, detail in faults[:MAX_FAULTS]]
    field, detail = errors[0]["field"], faults[0][1].rstrip(".")
    joint = "" if detail.startswith(":") else " "
    end = "" if detail.endswith("?") else "."
    sentence = f"'{field}'{joint}{detail}{end}" if field else f"{detail}{end}"
    return Problem(code, sentence, field=field or None, errors=errors if len(errors) > 1 else ())


def no_members(body: Mapping[str, object]) -> None:
    """Refuse a body that has anything in it."""
    for name in body:
        raise Problem("bad_json", "This address takes no body, or {}.", field=_shown(name))


def _text(request: Request) -> str:
    try:
        raw = request.raw_body or b""
        raw = raw.encode() if isinstance(raw, str) else raw
        if len(raw) > MAX_BODY:
            raise Problem("payload_too_large", f"It has {len(raw)} bytes; at most {MAX_BODY} are taken.")
        text = raw.decode("utf-8")
    except ValueError:  # UnicodeError, and base64 that isn't any
        raise Problem("bad_json", "It must be UTF-8.") from None
    if text.startswith("\ufeff"):
        raise Problem("bad_json", "It begins with a byte order mark; send UTF-8 without one.")
    return text


def _must_be_json(request: Request) -> None:
    given = request.headers.get("content-type") or "application/json"
    media_type, *parameters = (part.strip().lower() for part in given.split(";"))
    charset = [p.partition("=")[2].strip('" ') for p in parameters if p.startswith("charset")]
    if media_type != "application/json" or charset not in ([], ["utf-8"], ["utf8"]):
        raise Problem("unsupported_media_type", "Send `application/json`, in UTF-8.", field="Content-Type")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise Problem("bad_json", "A member stands in it twice.", field=_shown(name))
        found[name] = value
    return found


def _no_constant(name: str) -> object:
    raise Problem("bad_json", f"{name} isn't JSON.")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise Problem("bad_json", "A number in it is out of range.")
    return number


def _check_texts(value: object, path: str, depth: int) -> None:
    """PostgreSQL keeps neither NUL nor half a surrogate pair; and who nests that deep means no good."""
    if depth > MAX_DEPTH:
        raise Problem("bad_json", f"It is nested deeper than {MAX_DEPTH} levels.", field=_shown(path))
    if isinstance(value, str):
        if "\0" in value or not _encodes(value):
            raise Problem("bad_json", "A text in it holds NUL or half a surrogate pair.", field=_shown(path))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_texts(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, dict):
        for name, item in value.items():
            _check_texts(name, path or name, depth)
            _check_texts(item, f"{path}.{name}" if path else name, depth + 1)


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    """A caller's own name for something, fit to be given back: short and printable."""
    return "".join(c if c.isprintable() and _encodes(c) else "?" for c in name[:100])
