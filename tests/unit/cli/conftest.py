"""A Leaseway that says what a test tells it to say, and the command line that speaks to it over real HTTP."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from chalicelib.cli import leaseway, remote

JOB = "019ad0c2-0000-7000-8000-000000000001"
NO_ANSWER = 0
"""A status for the connection that breaks once the request has arrived."""
Run = Callable[..., Result]


class Server(ThreadingHTTPServer):
    """Answers each request with the next answer told for it; the last one stays."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.answers: dict[str, list[tuple[int, Any, dict[str, str]]]] = defaultdict(list)
        self.asked: list[tuple[str, Any, str | None]] = []
        self.media_types: list[str | None] = []
        self.keys: list[str | None] = []  # the Idempotency-Key of each
        self.checksums: list[str | None] = []  # the x-amz-checksum-sha256 of each

    def tell(self, request: str, body: Any = None, status: int = 200, **headers: str) -> None:
        self.answers[request].append((status, body, headers))

    def problem(self, request: str, status: int, code: str, title: str, **more: Any) -> None:
        self.tell(
            request,
            {"type": f"{self.url}/problems/{code}", "title": title, "status": status, "code": code, **more},
            status,
        )


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        sent = json.loads(raw) if raw and "json" in self.headers.get("Content-Type", "") else raw or None
        request = f"{self.command} {self.path}"
        self.server.asked.append((request, sent, self.headers.get("Authorization")))
        self.server.keys.append(self.headers.get("Idempotency-Key"))
        self.server.checksums.append(self.headers.get("x-amz-checksum-sha256"))
        self.server.media_types.append(self.headers.get("Content-Type"))
        told = self.server.answers[request]
        status, body, headers = (told.pop(0) if len(told) > 1 else told[0]) if told else (599, f"untold: {request}", {})
        if status == NO_ANSWER:
            self.close_connection = True
            return
        text = b"" if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_PUT = do_POST = do_DELETE = answer  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as serving:
        Thread(target=serving.serve_forever, kwargs={"poll_interval": 0.001}, daemon=True).start()
        yield serving
        serving.shutdown()


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses that a command would have made."""
    made: list[float] = []
    monkeypatch.setattr(remote, "sleep", made.append)
    return made


@pytest.fixture
def run(server: Server, monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> Run:
    """Run a command as an office laptop would: an address and a token, nothing else."""
    monkeypatch.setenv("LEASEWAY_URL", server.url)
    monkeypatch.setenv("LEASEWAY_TOKEN", "lw_secret")

    def invoke(*arguments: str, input: str | None = None) -> Result:
        return CliRunner().invoke(leaseway, arguments, input=input)

    return invoke


def status(state: str = "PUBLISHED", **more: Any) -> dict[str, Any]:
    """A status document as the server writes it."""
    by_state = {"REQUESTED": "queued", "PUBLISHED": "succeeded", "FAILED": "failed"}
    return {
        "id": JOB,
        "pipeline": "publication",
        "subject": {"dataset": "flights"},
        "status": by_state.get(state, "running"),
        "state": state,
        "attempts": 1,
        "progress": {"records": None, "bytes": None, "total": None},
        "version": 1 if state == "PUBLISHED" else None,
        "accepted_at": "2026-11-29T02:00:00Z",
        "started_at": None,
        "finished_at": None,
        "waiting_for": None,
        "failure": None,
        "follow_up": False,
        "links": {},
        **more,
    }
