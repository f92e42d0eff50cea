"""Leaseway over HTTP: all that an office laptop needs is an address and a token."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from ssl import SSLContext
from time import monotonic, sleep
from typing import Any

import click
import httpx

UNFINISHED = ("queued", "running")
KEY = re.compile(r"[\x21-\x7e]{1,255}")
PASSING = (429, 502, 503, 504)
AGAIN = 1.0
"""Seconds until what wasn't Leaseway is asked once more."""


class Refused(click.ClickException):
    """The server, or the thing a command asked for, said no; the exit code is 1."""

    def __init__(self, sentence: str, code: str | None = None, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(sentence)
        self.code = code
        self.body = body or {}


class Away(Refused):
    """Nobody answered: the request may be sent again."""


@cache
def _trusted() -> SSLContext:
    """Whom to trust; read once, for it takes 20 ms."""
    return httpx.create_ssl_context()


class Remote:
    """One Leaseway, spoken to as the holder of one token."""

    def __init__(self, url: str, token: str | None, remedy: str) -> None:
        """Speak to the Leaseway at `url`; `remedy` is the sentence for an address where nobody answers."""
        self.url = url.rstrip("/")
        self._remedy = remedy
        self._authorization = {"Authorization": f"Bearer {token}"} if token else {}
        accept = {"Accept": "application/json, application/problem+json"}
        self._http = httpx.Client(timeout=httpx.Timeout(30, connect=5), headers=accept, verify=_trusted())

    def ask(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        content: bytes | None = None,
        media_type: str | None = None,
        idempotency_key: str | None = None,
        condition: Mapping[str, str] | None = None,
        **query: object,
    ) -> httpx.Response:
        """Send one request, with JSON or other content; an answer that isn't a success is raised as a sentence.

        A condition is a header, If-Match or If-None-Match, with its value.
        With a key it is the same request when it is sent again: where no answer came, or one that isn't Leaseway's, it
        is, once; so is a read that something else answered.
        """
        address = path if path.startswith(("http://", "https://")) else self.url + path
        # The token goes to this Leaseway alone, whatever address an answer hands out.
        headers = self._authorization if address.startswith(self.url + "/") else {}
        parameters = {name: str(value) for name, value in query.items() if value is not None}
        if idempotency_key is not None:
            if not KEY.fullmatch(idempotency_key):
                raise click.BadParameter(
                    "it is 1 to 255 visible ASCII characters: letters, digits and signs, no blank, no umlaut.",
                    param_hint="--key",
                )
            headers = headers | {"Idempotency-Key": idempotency_key}
        if media_type is not None:
            headers = headers | {"Content-Type": media_type}
        headers = {**headers, **(condition or {})}
        request = self._http.build_request(
            method, address, json=json, content=content, params=parameters or None, headers=headers
        )
        try:
            try:
                answer = self._http.send(request)
            except httpx.TransportError:
                if idempotency_key is None:
                    raise
                answer = self._http.send(request)
            if _is_strange(answer) and (method == "GET" or idempotency_key is not None):
                sleep(AGAIN)
                answer = self._http.send(request)
        except httpx.InvalidURL as error:
            raise click.UsageError(f"{address} is no address; one is https://data.example.org.") from error
        except httpx.TransportError as error:
            raise Away(f"Nobody answers at {self.url}. {self._remedy}") from error
        if _is_strange(answer):
            raise _stranger(answer, idempotency_key)
        if not answer.is_success:
            raise _refusal(answer)
        return answer

    def get(self, path: str, **query: object) -> Any:
        """Read a JSON document."""
        return self.ask(
            "GET", path, content=None, media_type=None, idempotency_key=None, condition=None, **query
        ).json()

    def follow(self, location: str, patience: float = 300) -> Iterator[dict[str, Any]]:
        """Yield the status of a job until it has finished, as often as the server likes to be asked.

        A server that doesn't answer is asked again for `patience` seconds: the job goes on without us.
        """
        answered = monotonic()
        while True:
            pause = 2.0
            try:
                answer = self.ask("GET", location)
            except Refused as refused:
                if not isinstance(refused, Away) or monotonic() - answered > patience:
                    raise
            else:
                answered = monotonic()
                status = answer.json()
                yield status
                if status["status"] not in UNFINISHED:
                    return
                pause = float(answer.headers.get("Retry-After", pause))
            sleep(pause)


def _is_strange(answer: httpx.Response) -> bool:
    """Whether something else answers at the address, as a stack does that is only starting: Leaseway speaks JSON."""
    try:
        body = answer.json() if answer.content or not answer.is_success else None
    except ValueError:
        return True
    return not answer.is_success and not (isinstance(body, dict) and "title" in body)


def _stranger(answer: httpx.Response, idempotency_key: str | None) -> Refused:
    """Make one sentence of an answer that isn't Leaseway's; one that will pass is as good as none."""
    where = f"{answer.request.method} {answer.request.url}"
    sentence = f"{where} was answered {answer.status_code} by something that isn't Leaseway."
    if idempotency_key is not None:
        sentence += f" It may be sent again with the same key, {idempotency_key}: it is the same request."
    passing = answer.is_success or answer.status_code in PASSING
    return Away(sentence) if passing else Refused(sentence)


def _refusal(answer: httpx.Response) -> Refused:
    """Make one sentence of a problem document."""
    body = answer.json()
    sentence = str(body["title"]).rstrip(".")
    if body.get("code") == "not_found" and body.get("detail"):  # what isn't there, rather than where
        return Refused(str(body["detail"]), code="not_found", body=body)
    if body.get("field"):
        sentence += f" ({body['field']})"
    if body.get("detail"):
        sentence += f": {body['detail']}"
    for error in body.get("errors") or []:
        sentence += f"\n  {error.get('field', '')}: {error.get('detail', '')}"
    if answer.status_code == 401:
        sentence += " Set LEASEWAY_TOKEN to a token; an operator makes one with `leaseway token create`."
    kind = Away if answer.status_code in PASSING else Refused
    return kind(sentence, code=body.get("code"), body=body)
