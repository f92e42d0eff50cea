"""What every route has in common: whose token it is, what it reaches, and what an error looks like."""

import json
import re
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Any

from chalice.app import Chalice, CORSConfig, Request, Response
from pydantic import BaseModel

from chalicelib import pipelines, telemetry
from chalicelib.db import BUSY, DatabaseAway
from chalicelib.engine import Engine, Idempotency, Pause, Refusal, SubjectBusy
from chalicelib.security import Principal, Role, Unauthorized, authenticate, keyed_hash
from chalicelib.settings import InvalidSettings, Settings

from .problems import Problem, not_found, of_chalice
from .requests import dataset_id

EVERY_ORIGIN = CORSConfig(
    allow_origin="*",
    expose_headers=["Content-Location", "ETag", "Link", "Location", "Repr-Digest", "Retry-After"],
    max_age=86400,
)
"""Public addresses are for every page's script; no cookie or other credential is ever looked at."""

_KEY = re.compile(r"[!-~]{1,255}")

AWAY_RETRY = 5
"""Seconds after which a caller may ask again while the database is away or busy."""


class Call:
    """One request and what is needed to answer it."""

    def __init__(self, request: Request, context: pipelines.Context, principal: Principal | None):
        """Hold a request together with the context, and the principal where the route wants a token."""
        self.request = request
        self.settings: Settings = context.settings
        self.engine: Engine = context.engine
        self.db = context.db
        self._principal = principal
        self._pauses: list[Pause] | None = None

    @property
    def principal(self) -> Principal:
        """Who asks; only a route with a role has one."""
        assert self._principal is not None
        return self._principal

    @property
    def pauses(self) -> list[Pause]:
        """The pauses that stand, asked for once."""
        if self._pauses is None:
            self._pauses = self.engine.pauses()
        return self._pauses

    def header(self, name: str) -> str | None:
        """A header of the request."""
        return self.request.headers.get(name)

    def idempotency(self, asked: Mapping[str, object]) -> Idempotency | None:
        """By what an accepting request is known again, if it has an Idempotency-Key; `asked` is all that it says."""
        key = self.header("idempotency-key")
        if key is None:
            return None
        every = self.request.to_original_event().get("multiValueHeaders") or {}  # the gateway's; `headers` has the last
        if any(name.lower() == "idempotency-key" and len(given) > 1 for name, given in every.items()):
            raise Problem("bad_request", "There is more than one; a request has one.", field="Idempotency-Key")
        if not _KEY.fullmatch(key):
            raise Problem("bad_request", "It must be 1 to 255 visible ASCII characters.", field="Idempotency-Key")
        path = self.request.path.format(**self.request.uri_params or {})
        return Idempotency(
            principal=keyed_hash("idempotency-principal", self.principal.name),
            route=f"{self.request.method} {path}",
            key=keyed_hash("idempotency-key", key),
            body=keyed_hash("idempotency-body", json.dumps(asked, sort_keys=True)),
        )

    def url(self, path: str) -> str:
        """The absolute address of a path: under PUBLIC_URL, whatever the Host header says."""
        return self.settings.public_url + path


View = Callable[..., Response]


@dataclass(frozen=True, kw_only=True)
class Route:
    """A route, and what it declares for its description."""

    path: str
    methods: tuple[str, ...]
    role: Role | None
    view: View
    answers: tuple[int, ...]
    query: tuple[str, ...]
    headers: tuple[str, ...]
    required: tuple[str, ...]
    body: type[BaseModel] | None
    gives: str | None
    forms: tuple[str, ...]
    media_types: tuple[str, ...]


class Api:
    """Registers routes on the app."""

    def __init__(self, app: Chalice):
        """Answer errors of the app itself as problem documents too."""
        self._app = app
        self.routes: list[Route] = []
        app.register_middleware(_middleware, "http")

    def route(
        self,
        path: str,
        *methods: str,
        role: Role | None,
        answers: tuple[int, ...] = (200,),
        query: tuple[str, ...] = (),
        headers: tuple[str, ...] = (),
        required: tuple[str, ...] = (),
        body: type[BaseModel] | None = None,
        gives: str | None = None,
        forms: tuple[str, ...] = ("application/json",),
        media_types: tuple[str, ...] = (),
    ) -> Callable[[View], View]:
        """Answer at a path; ``role`` None is public. A view gets the Call and the path's parts.

        The rest is what ``/openapi.json`` says of it: ``gives`` names the JSON of answers, one of ``openapi.GIVEN``;
        ``required`` names the headers that must be sent; ``forms`` are the media types of answers; ``media_types``
        are those of a body that is no JSON object.
        """

        def register(view: View) -> View:
            @wraps(view)
            def entry(**parts: str) -> Response:
                request = self._app.current_request
                assert request is not None
                response = _guarded(request, lambda: _answer(view, request, role, parts))
                if role is not None:
                    response.headers.setdefault("Cache-Control", "private, no-store")
                if request.method == "HEAD":
                    response.body = ""
                return response

            self._app.route(
                path,
                methods=list(methods),
                content_types=[],  # a body's type is checked where the body is read
                cors=EVERY_ORIGIN if role is None else None,
            )(entry)
            self.routes.append(
                Route(
                    path=path,
                    methods=methods,
                    role=role,
                    view=view,
                    answers=answers,
                    query=query,
                    headers=headers,
                    required=required,
                    body=body,
                    gives=gives,
                    forms=forms,
                    media_types=media_types,
                )
            )
            return view

        return register


def _answer(view: View, request: Request, role: Role | None, parts: dict[str, str]) -> Response:
    context = pipelines.context()
    principal = None
    if role is not None:
        principal = authenticate(context.db, request.headers.get("authorization"))
        # Outside the pattern nothing exists, whatever the role: first 404, then 403.
        if "dataset" in parts and not principal.reaches(dataset_id(parts["dataset"])):
            raise not_found()
        if principal.role < role:
            raise Problem("forbidden", f"It takes the role {role.name.lower()}.")
    return view(Call(request, context, principal), **parts)


def _middleware(request: Request, answer: Callable[[Request], Response]) -> Response:
    response = of_chalice(_guarded(request, lambda: answer(request)))
    response.headers["X-Content-Type-Options"] = "nosniff"
    return response


def _guarded(request: Request, answer: Callable[[], Response]) -> Response:
    try:
        return answer()
    except Problem as problem:
        return problem.answer()
    except Unauthorized as refused:
        error = ', error="invalid_token"' if refused.given else ""
        headers = {"WWW-Authenticate": f'Bearer realm="leaseway"{error}'}
        return Problem("unauthorized", "The token doesn't stand." if refused.given else "", headers=headers).answer()
    except SubjectBusy as busy:
        return Problem("subject_busy", busy.detail, job=str(busy.active), pipeline=busy.pipeline).answer()
    except Refusal as refusal:
        return Problem(refusal.code, refusal.detail, field=refusal.field).answer()
    except DatabaseAway:
        return unavailable("Leaseway's own database doesn't answer.").answer()
    except BUSY:
        return unavailable("The database is busy with the same thing.").answer()
    except InvalidSettings as error:
        return _broken(request, error, "settings_invalid")
    except Exception as error:  # noqa: BLE001 - the outermost place: whatever it is, its text stays inside
        return _broken(request, error, "request_failed")


def unavailable(why: str) -> Problem:
    """503: what is asked for can't be answered right now."""
    return Problem("unavailable", why, headers={"Retry-After": str(AWAY_RETRY)})


def _broken(request: Request, error: Exception, event: str) -> Response:
    request_id = str(getattr(request.lambda_context, "aws_request_id", None) or uuid.uuid4())
    telemetry.failure(event, error, request_id=request_id, method=request.method, route=request.path)
    return Problem("internal_error", request_id=request_id).answer()


def answer(document: object, status: int = 200, **headers: str) -> Response:
    """A JSON answer; ``cache_control="…"`` is the header Cache-Control."""
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    body = json.dumps(document, ensure_ascii=False, default=_json)
    return Response(body, {"Content-Type": "application/json", **named}, status)


def unless_known(call: Call, response: Response) -> Response:
    """The response; 304 if the caller's If-None-Match names its ETag, 412 if an If-Match doesn't (RFC 9110, 13.1)."""
    etag = response.headers["Etag"]
    if not {etag, "*"} & _tags(call.header("if-match") or "*"):
        raise Problem("precondition_failed", "It is another one by now.", field="If-Match")
    if {etag, "*"} & _tags((call.header("if-none-match") or "").replace("W/", "")):
        kept = ("Etag", "Cache-Control", "Vary", "Content-Location")
        return Response("", {name: value for name, value in response.headers.items() if name in kept}, 304)
    return response


def _tags(header: str) -> set[str]:
    return {tag.strip() for tag in header.split(",")}


def _json(value: Any) -> object:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, uuid.UUID):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
