"""A data service that keeps to docs/data-service.openapi.yaml, and misbehaves on request: a real HTTP server."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft202012Validator

CONTRACT = Path(__file__).parents[2] / "docs" / "data-service.openapi.yaml"
TOKEN = "canary-token"

DRIPS = {
    "dripping header": (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
    "dripping chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "dripping later": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", b"0"),
    "continuing": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
"""What begins an answer, and what then comes of it again and again."""


@cache
def contract() -> dict[str, Any]:
    return yaml.safe_load(CONTRACT.read_text())


@cache
def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/components/schemas/{name}", "components": contract()["components"]})


@dataclass
class Kept:
    """An export as the service keeps it."""

    fence: int
    wanted: dict[str, Any]
    looks: int = 0
    edition: int = 0
    deleted: bool = False


@dataclass
class Mishap:
    where: str
    kind: str
    left: int | None
    after: int

    def strikes(self, where: str) -> bool:
        if self.where != where or self.left == 0:
            return False
        if self.after:
            self.after -= 1
            return False
        self.left = None if self.left is None else self.left - 1
        return True


@dataclass
class DataService:
    """What it has been asked, what it keeps, and how it misbehaves.

    ``patience``: how often an export is looked at until it is done, each time after ``retry_after``. ``failure``: the
    code it fails with instead.
    """

    records: int = 100
    patience: int = 2
    retry_after: float = 5
    failure: dict[str, Any] | None = None
    exports: dict[str, Kept] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    tokens: set[str | None] = field(default_factory=set)
    ranges: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)  # where the client didn't keep to the contract
    mishaps: list[Mishap] = field(default_factory=list)
    elsewhere: str = ""
    url: str = ""
    stopping: threading.Event = field(default_factory=threading.Event)

    def misbehave(self, where: str, kind: str, times: int | None = 1, *, after: int = 0) -> None:
        """At the next requests of that kind (start, look, file, delete, fence), ``after`` some; None: for ever."""
        self.mishaps.append(Mishap(where, kind, times, after))

    def behave(self) -> None:
        self.mishaps.clear()

    def lose(self) -> None:
        """It forgets everything, as one that keeps its exports in memory and is restarted."""
        self.exports.clear()

    def left(self) -> list[str]:
        """The exports whose files it still keeps."""
        return [key for key, kept in self.exports.items() if not kept.deleted]

    def content(self, kept: Kept, name: str) -> bytes:
        wanted = next(file for file in kept.wanted["files"] if file["name"] == name)
        rows = [f"{wanted['format']},{kept.edition},{number},{'x' * 80}\n" for number in range(self.records)]
        return "".join(rows).encode()

    def document(self, kept: Kept) -> dict[str, Any]:
        told: dict[str, Any] = {"fence": kept.fence, "status": "running", "total": self.records}
        told["retry_after"] = self.retry_after
        kept.looks += 1
        if kept.looks < self.patience:
            return told
        if self.failure:
            return told | {"status": "failed", **self.failure}
        files = [
            file | {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "records": self.records}
            for file in ({k: v for k, v in each.items() if k != "options"} for each in kept.wanted["files"])
            if (content := self.content(kept, file["name"])) or True
        ]
        written = sum(file["bytes"] for file in files)
        return told | {
            "status": "done",
            "records": self.records,
            "bytes": written,
            "files": files,
            "unpublished": ["owner", "Einwohner\n" * 10],
        }


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: DataService
    _part: dict[str, str]
    """What an answer says of the part that it is."""

    def log_message(self, *_: Any) -> None:
        """Nothing."""

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.service.bodies.append(body)
        self.service.faults += [fault.message for fault in schema("Wanted").iter_errors(body)]
        self._serve("start", lambda: self._start(body))

    def do_GET(self) -> None:
        path = self.path.removeprefix("/v1")
        where = "fence" if path == "/fence" else "file" if "/files/" in path else "look"
        self._serve(where, {"fence": self._fence, "file": self._file, "look": self._look}[where])

    def do_DELETE(self) -> None:
        self._serve("delete", self._delete)

    # What it does when it behaves: status, body, headers

    def _start(self, body: dict[str, Any]) -> tuple[int, Any]:
        key = self._key()
        kept = self.service.exports.get(key)
        if kept is None and self.headers.get("If-Match") == "*":
            return 412, None
        if kept is None:
            kept = self.service.exports[key] = Kept(body["fence"], body)
            return 201, self.service.document(kept)
        if kept.deleted:
            return 410, None
        if kept.fence > body["fence"]:
            return 409, {"fence": kept.fence}
        kept.fence = body["fence"]
        return 200, self.service.document(kept)

    def _look(self) -> tuple[int, Any]:
        kept = self.service.exports.get(self._key())
        if kept is None or kept.deleted:
            return 404 if kept is None else 410, None
        return 200, self.service.document(kept)

    def _file(self) -> tuple[int, Any]:
        kept, name = self._named()
        if kept is None or kept.deleted or name not in {file["name"] for file in kept.wanted["files"]}:
            return 404, None
        content = self.service.content(kept, name)
        wanted = re.fullmatch(r"bytes=([0-9]+)-", self.headers.get("Range", ""))
        if wanted is None:
            return 200, content
        start, size = int(wanted[1]), len(content)
        if start >= size:
            return 416, None
        self._part = {"Content-Range": f"bytes {start}-{size - 1}/{size}"}
        return 206, content[start:]

    def _delete(self) -> tuple[int, Any]:
        self.service.exports.setdefault(self._key(), Kept(0, {})).deleted = True
        return 204, None

    def _fence(self) -> tuple[int, Any]:
        return 200, {"fence": max((kept.fence for kept in self.service.exports.values()), default=0)}

    def _named(self) -> tuple[Kept | None, str]:
        return self.service.exports.get(self._key()), self.path.rpartition("/")[2]

    def _key(self) -> str:
        return self.path.removeprefix("/v1/exports/").partition("/")[0]

    # And when it doesn't

    def _serve(self, where: str, act: Any) -> None:
        service = self.service
        self._part = {}
        service.asked.append(where)
        if wanted := self.headers.get("Range"):
            service.ranges.append(wanted)
        service.tokens.add(self.headers.get("Authorization"))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._send(401, {"title": "no"})
        if not self.path.startswith("/v1/"):
            return self._send(404, None)
        kind = next((mishap.kind for mishap in service.mishaps if mishap.strikes(where)), "")
        if kind == "lost request":
            return self._hang_up()
        if kind == "silent":  # until the other side gives up, or the test ends
            service.stopping.wait(30)
            return self._hang_up()
        if kind in DRIPS:
            return self._drip(*DRIPS[kind])
        if kind in ("500", "404", "400"):
            return self._send(int(kind), {"title": "canary"})
        if kind in ("429", "503"):
            return self._send(int(kind), None, {"Retry-After": {"429": "900 \t", "503": "99999999"}[kind]})
        if kind == "redirect":
            return self._send(307, None, {"Location": service.elsewhere})
        if kind == "older fence accepted":
            service.exports[self._key()].fence, before = 0, service.exports[self._key()].fence
            status, answer = act()
            service.exports[self._key()].fence = before
            return self._send(status, answer | {"fence": before})
        if kind == "older fence refused":
            return self._send(409, {"fence": service.exports[self._key()].fence})
        status, answer = act()
        match kind:
            case "lost reply":
                return self._hang_up()
            case "lost export":
                service.exports.pop(self._key(), None)
                return self._send(status, answer)
            case "another checksum":  # it makes the export anew, and says nothing
                service.exports[self._key()].edition += 1
                return self._send(200, service.document(service.exports[self._key()]))
            case "part of the files":
                return self._send(200, answer | {"files": answer["files"][:-1]} if "files" in answer else answer)
            case "more files":
                return self._send(200, answer | {"files": answer["files"] + answer["files"][:1]})
            case "other records":
                return self._send(200, answer | {"records": 1})
            case "cut short":
                return self._send(status, answer, cut=True)
            case "whole":  # one that knows no Range
                self._part = {}
                return self._send(200, self.service.content(*self._named()))
            case "another part":
                self._part = {"Content-Range": "bytes 0-8/9"}
                return self._send(206, answer)
            case "a shorter file":
                return self._send(status, answer[: len(answer) // 2])
            case "wrong bytes":
                return self._send(status, b"y" + answer[1:])
            case "a longer file":
                return self._send(status, answer + b"more")
            case "encoded":
                return self._send(status, answer, {"Content-Encoding": "gzip"})
            case "accepted":
                return self._send(202, None)
            case "huge":
                return self._pour(b" " * 65536)
            case "dripping":
                return self._pour(b" ", pause=0.02)
            case "deep":
                return self._send(200, b"[" * 500_000)
            case "text":
                return self._send(200, b"<html>canary</html>")
            case "done without files":
                return self._send(200, {"status": "done", "fence": answer["fence"]})
            case "a text for a number":
                return self._send(200, answer | {"fence": str(answer["fence"])})
            case "another shape":
                return self._send(200, {"status": "done", "fence": 2**63, "files": [{"name": "../../etc"}]})
        return self._send(status, answer)

    def _send(self, status: int, answer: Any, headers: dict[str, str] | None = None, *, cut: bool = False) -> None:
        body = answer if isinstance(answer, bytes) else b"" if answer is None else json.dumps(answer).encode()
        self.send_response(status)
        for name, value in ((headers or {}) | self._part | {"Content-Length": str(len(body))}).items():
            if status != 204 or name != "Content-Length":
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body[: len(body) // 2] if cut else body)
        if cut:
            self._hang_up()

    def _pour(self, piece: bytes, pause: float = 0) -> None:
        """An answer that never ends; the other side hangs up."""
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.close_connection = True
        try:
            while not self.service.stopping.wait(pause):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        except OSError:
            return

    def _drip(self, begin: bytes, drop: bytes) -> None:
        """Ever more of what comes before a body; the other side hangs up."""
        self.close_connection = True
        try:
            self.wfile.write(begin)
            while not self.service.stopping.wait(0.02):
                self.wfile.write(drop)
        except OSError:
            return

    def _hang_up(self) -> None:
        self.close_connection = True


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """Who hangs up is no error here."""


@contextmanager
def serving() -> Iterator[DataService]:
    """A data service on a port of its own, in threads of its own."""
    service = DataService()
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"service": service}))
    service.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.001}, daemon=True)
    thread.start()
    try:
        yield service
    finally:
        service.stopping.set()
        server.shutdown()
        server.server_close()
        thread.join()
