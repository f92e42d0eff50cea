"""Errors as RFC 9457 problem documents: a stable code, the field, the remedy, and nothing private."""

import json
from collections.abc import Mapping, Sequence

from chalice.app import ChaliceUnhandledError, HeadersType, Response

from chalicelib.codes import ALL
from chalicelib.settings import settings

MEDIA_TYPE = "application/problem+json"


class Problem(ChaliceUnhandledError):
    """A request is refused; the answer is a problem document."""

    def __init__(
        self,
        code: str,
        detail: str = "",
        *,
        field: str | None = None,
        errors: Sequence[Mapping[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        **more: object,
    ):
        """Refuse with a code of ``codes.py``; ``more`` are further members of the document."""
        super().__init__(code)
        self.code = code
        self.status = ALL[code].status
        remedy = ALL[code].remedy
        self.detail = detail if remedy.lower() in detail.lower() else f"{detail} {remedy}".strip()
        self.field = field
        self.errors = errors
        self.headers = dict(headers or {})
        self.more = more

    def answer(self) -> Response:
        """The problem document."""
        document: dict[str, object] = {
            "type": f"{settings().public_url}/problems/{self.code}",
            "title": ALL[self.code].sentence.rstrip("."),
            "status": self.status,
            "code": self.code,
        }
        if self.field is not None:
            document["field"] = self.field
        if self.detail:
            document["detail"] = self.detail
        if self.errors:
            document["errors"] = list(self.errors)
        headers: HeadersType = {"Content-Type": MEDIA_TYPE, "Cache-Control": "no-store", **self.headers}
        return Response(json.dumps(document | self.more, ensure_ascii=False), headers, self.status)


def not_found(what: str = "") -> Problem:
    """404: it doesn't exist, or the token may not know that it does; the answer is the same."""
    return Problem("not_found", what)


def parameter(name: str, detail: str) -> Problem:
    """400: a query parameter."""
    return Problem("bad_parameter", detail, field=name)


def of_chalice(response: Response) -> Response:
    """Chalice's own answers (405, 415, 400, 500) as problem documents; every other answer as it is."""
    body = response.body
    if not (isinstance(body, dict) and body.keys() == {"Code", "Message"}):
        return response
    allowed = response.headers.get("Allow")
    if response.status_code == 405 and allowed:
        return Problem("method_not_allowed", f"It takes {allowed}.", headers={"Allow": str(allowed)}).answer()
    by_status = {400: "bad_request", 404: "not_found", 405: "not_found", 415: "unsupported_media_type"}
    return Problem(by_status.get(response.status_code, "internal_error")).answer()
