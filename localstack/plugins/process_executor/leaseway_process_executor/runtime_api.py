"""The AWS Lambda Runtime API (version 2018-06-01), served on a loopback port to one function process.

Knows nothing of LocalStack. See https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import json
import logging
import threading
from concurrent.futures import Future
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from queue import SimpleQueue
from typing import Any

LOG = logging.getLogger(__name__)
PREFIX = "/2018-06-01/runtime"


@dataclass(frozen=True)
class Invocation:
    """What the process is asked to do; the deadline is in milliseconds since the epoch."""

    request_id: str
    payload: bytes
    function_arn: str
    trace_id: str
    deadline_ms: int


@dataclass(frozen=True)
class Outcome:
    """What came of an invocation: the handler's JSON, or the JSON of an error (errorType, errorMessage)."""

    body: bytes
    is_error: bool


class InitFailed(Exception):
    """The function failed before it could take an invocation."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body.decode(errors="replace"))
        self.body = body


def error(error_type: str, message: str) -> bytes:
    """Return the JSON of an error in Lambda's form."""
    return json.dumps({"errorType": error_type, "errorMessage": message}).encode()


class RuntimeApi:
    """One function process's side door: it fetches invocations here and leaves their outcomes.

    The process handles one invocation at a time. `end` answers whatever waits, now and later, so nobody waits for a
    process that is gone.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ready: Future[bytes | None] = Future()  # None: ready; bytes: the error of its start
        self._waiting: SimpleQueue[Invocation | None] = SimpleQueue()
        self._current: tuple[str, Future[Outcome]] | None = None
        self._end_reason: str | None = None
        self._server = _Server(self)
        self.address = f"127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="runtime-api", daemon=True
        ).start()

    def wait_until_ready(self, timeout: float | None) -> None:
        """Return once the process asks for work.

        Raises:
            InitFailed: the code couldn't be loaded, or the process ended.
            TimeoutError: it didn't ask in time.
        """
        if (body := self._ready.result(timeout)) is not None:
            raise InitFailed(body)

    def submit(self, invocation: Invocation) -> Future[Outcome]:
        """Hand an invocation to the process."""
        outcome: Future[Outcome] = Future()
        with self._lock:
            self._current = invocation.request_id, outcome
            if self._end_reason is None:
                self._waiting.put(invocation)
            else:
                outcome.set_result(self._ended(invocation.request_id))
        return outcome

    def end(self, reason: str) -> None:
        """The process has ended: whoever waits for it gets the error Runtime.ExitError, and the port is closed."""
        with self._lock:
            self._end_reason = reason
            if not self._ready.done():
                self._ready.set_result(self._ended("unknown").body)
            if self._current and not self._current[1].done():
                request_id, outcome = self._current
                outcome.set_result(self._ended(request_id))
        self._waiting.put(None)
        self._server.shutdown()
        self._server.server_close()

    def _ended(self, request_id: str) -> Outcome:
        return Outcome(error("Runtime.ExitError", f"RequestId: {request_id} Error: {self._end_reason}"), True)

    # ---- the process's side, called by the HTTP handler

    def next_invocation(self) -> Invocation | None:
        """Wait for work; None means that the process is to go."""
        self._set_ready(None)
        return self._waiting.get()

    def init_failed(self, body: bytes) -> None:
        """Take the error of a failed start."""
        self._set_ready(body)

    def resolve(self, request_id: str, outcome: Outcome) -> bool:
        """Take an outcome; False if this isn't the running invocation."""
        with self._lock:
            if not self._current or self._current[0] != request_id or self._current[1].done():
                return False
            self._current[1].set_result(outcome)
            return True

    def _set_ready(self, body: bytes | None) -> None:
        with self._lock:
            if not self._ready.done():
                self._ready.set_result(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, api: RuntimeApi) -> None:
        self.api = api
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        LOG.debug("a function process went away in the middle of a request", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # Head and body leave in one segment: Nagle's algorithm with delayed acknowledgements costs 40 ms a call otherwise.
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_GET(self) -> None:
        if self.path != f"{PREFIX}/invocation/next":
            return self._reply(404)
        if not (invocation := self.server.api.next_invocation()):
            self.close_connection = True
            return self._reply(410)
        return self._reply(
            200,
            invocation.payload,
            {
                "Content-Type": "application/json",
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": invocation.function_arn,
                "Lambda-Runtime-Trace-Id": invocation.trace_id,
            },
        )

    def do_POST(self) -> None:
        if (body := self._body()) is None:  # cut off: its sender is dying, and half an answer is none
            self.close_connection = True
            return None
        match self.path.removeprefix(f"{PREFIX}/").split("/"):
            case ["init", "error"]:
                self.server.api.init_failed(body)
                return self._reply(202, b'{"status":"OK"}')
            case ["invocation", request_id, ("response" | "error") as kind]:
                if self.server.api.resolve(request_id, Outcome(body, kind == "error")):
                    return self._reply(202, b'{"status":"OK"}')
                return self._reply(400, error("InvalidRequestID", "This invocation isn't running."))
        return self._reply(404)

    def _body(self) -> bytes | None:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            return body if len(body) == length else None
        body = b""
        while head := self.rfile.readline():
            size = int(head.split(b";")[0], 16)
            chunk = self.rfile.read(size)
            if len(chunk) < size or self.rfile.readline() != b"\r\n":
                return None
            if not size:
                return body
            body += chunk
        return None

    def _reply(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: a line per invocation is noise."""
