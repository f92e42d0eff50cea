"""The data service's contract (docs/data-service.openapi.yaml), and the client of one that runs elsewhere.

What another machine says is checked like any input: answers are bounded, their shapes strict, and nothing in them is
ever an address. Only what stands below the configured one is asked.
"""

import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, Protocol, Self, override
from urllib.parse import urlsplit
from uuid import UUID

import urllib3
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator
from urllib3.connection import HTTPConnection, HTTPSConnection

from .errors import naming
from .files import LONGEST_HEADER

LARGEST_ANSWER = 1024 * 1024
"""Bytes of an answer that isn't a file."""

PIECE = 256 * 1024
"""Bytes of a file that are read at a time."""

LONGEST_LATER = 3600
"""Seconds for which a Retry-After is believed."""

TOLD = ("source_changed", "source_bad_record", "source_denied", "source_timeout")
"""The codes of a failure that the contract knows; what passes by itself is the service's to wait for."""

MIN_PAUSE, MAX_PAUSE = 2, 60
"""Seconds until an export is looked at again, whatever the service thinks."""


class ServiceAway(Exception):
    """The data service can't be reached, timed out or failed; ``details`` name the host, and how long to leave it."""

    def __init__(self, host: str, status: str, seconds: int | None = None):
        super().__init__()
        self.details: dict[str, str | int] = {"host": host, "status": status}
        if seconds is not None:
            self.details["seconds"] = seconds


class ServiceRefused(Exception):
    """The data service answers, but that it won't, or nothing that the contract knows."""

    def __init__(self, host: str, status: str):
        super().__init__()
        self.details: dict[str, str | int] = {"host": host, "status": status}


class NewerFence(Exception):
    """A newer fence has asked for this export."""

    def __init__(self, fence: int):
        super().__init__()
        self.fence = fence


class ExportLost(Exception):
    """The data service doesn't know the export, or not any more."""


class FileMismatch(Exception):
    """A file is missing, or isn't what the list of files says of it."""


@dataclass(frozen=True)
class WantedFile:
    """A file that is asked for. ``compress``: the media type of what wraps it; ``options``: its format's."""

    name: str
    format: str
    media_type: str
    compress: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Wanted:
    """What is exported: for whom (the key), by which revisions, which columns (name, type, source) and which files."""

    key: UUID
    dataset: str
    definition: int
    source: str
    source_revision: int
    columns: Sequence[Mapping[str, str | int]]
    files: Sequence[WantedFile]


@dataclass(frozen=True)
class ExportedFile:
    """A file of a finished export: bytes and SHA-256 (hexadecimal) of what ``read`` gives."""

    name: str
    format: str
    media_type: str
    bytes: int
    sha256: str
    records: int
    compress: str | None = None


@dataclass(frozen=True)
class Export:
    """Where an export stands; `files` is filled once it is done.

    ``stored`` says where its files lie if they are in our object storage already.
    """

    done: bool = False
    failed: str | None = None
    details: dict[str, Any] = field(default_factory=dict)
    waiting_for: str = "export"
    retry_after: float = 0
    records: int = 0
    bytes: int = 0
    total: int | None = None
    files: list[ExportedFile] = field(default_factory=list)
    stored: list[dict[str, Any]] = field(default_factory=list)
    unpublished: list[str] = field(default_factory=list)
    removed: int = 0


class Exports(Protocol):
    """A data service: exports by key; asking twice finds the same one, and an older fence than the last is refused."""

    def start(self, wanted: Wanted, *, fence: int, known: bool = False) -> Export:
        """Start the export that the key stands for, or find it; one that is ``known`` is only found.

        Raises NewerFence, ExportLost (it isn't there any more, or was deleted).
        """

    def look(self, wanted: Wanted) -> Export:
        """Where an export stands, without a fence. Raises ExportLost."""

    def read(self, key: UUID, name: str, start: int = 0) -> Iterator[bytes]:
        """A file's bytes from ``start`` on, in pieces (some may be empty). Raises FileMismatch where there is none."""

    def delete(self, key: UUID) -> bool:
        """Have an export and its files removed, for good; False while it still has to stop. Again: no effect."""


# What a remote one answers

Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Fence = Annotated[int, Field(ge=0, le=2**63 - 1)]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,149}$")]
Label = Annotated[str, StringConstraints(max_length=150)]
Column = Annotated[str, StringConstraints(max_length=LONGEST_HEADER, pattern=r"^[^\x00]*$")]


class _Answer(BaseModel):
    model_config = ConfigDict(strict=True, extra="ignore", frozen=True)


class _File(_Answer):
    name: Name
    format: Label
    media_type: Label
    bytes: Annotated[int, Field(ge=0, le=10_000 * 8 * 1024 * 1024)]  # as many parts as an upload may have
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    records: Count
    compress: Label | None = None


class _Details(_Answer):
    sqlstate: Annotated[str, StringConstraints(pattern=r"^[0-9A-Z]{5}$")] | None = None
    column: Column | None = None
    others: Annotated[list[Column], Field(max_length=1_599)] = []
    record: Count | None = None


class _Export(_Answer):
    status: Literal["running", "done", "failed"]
    fence: Fence
    records: Count = 0
    bytes: Count = 0
    total: Count | None = None
    retry_after: Annotated[float, Field(ge=0, allow_inf_nan=False)] = MIN_PAUSE
    code: Label = ""
    details: _Details = _Details()
    files: Annotated[list[_File], Field(max_length=100)] = []
    unpublished: Annotated[list[Column], Field(max_length=1_600)] = []
    removed: Count = 0

    @model_validator(mode="after")
    def _says_what_its_status_needs(self) -> Self:
        needed = {"done": {"files", "records"}, "failed": {"code"}}.get(self.status, set())
        if not needed <= self.model_fields_set:
            raise ValueError
        return self


class _Fence(_Answer):
    fence: Fence


class _Watch:
    """Shuts a connection down when its time is over: urllib3's own time-out begins anew with each byte that comes."""

    def __init__(self, seconds: float):
        self.over = False
        self._seconds = seconds
        self._line: socket.socket | None = None
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._end = 0.0

    def __enter__(self) -> Self:
        self.again()
        threading.Thread(target=self._watch, name="data service's time-out", daemon=True).start()
        _WATCH.set(self)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def hold(self, connected: socket.socket) -> None:
        """Watch this connection, by a descriptor of our own: TLS and a closing answer take the other one over."""
        with self._lock:
            if self._line:
                self._line.close()
            self._line = socket.socket(fileno=os.dup(connected.fileno()))
            if self.over:
                self._shut()

    def rest(self) -> None:
        """Nothing is waited for until ``again``."""
        self._end = float("inf")

    def again(self) -> None:
        """The time begins anew."""
        self._end = time.monotonic() + self._seconds

    def stop(self) -> bool:
        """Watch no more; whether the time was over."""
        self._done.set()
        with self._lock:
            if self._line:
                self._line.close()
                self._line = None
            return self.over

    def _watch(self) -> None:
        # Never asleep for longer than the whole time, so that the end of one that begins anew isn't missed.
        while (left := self._end - time.monotonic()) > 0:
            if self._done.wait(min(left, self._seconds)):
                return
        with self._lock:
            self.over = not self._done.is_set()
            if self.over:
                self._shut()

    def _shut(self) -> None:
        if self._line:
            with suppress(OSError):  # the other side was faster
                self._line.shutdown(socket.SHUT_RDWR)


_WATCH: ContextVar[_Watch] = ContextVar("watch")
"""The watch of the exchange that a connection is asked for."""


class _Watched(HTTPConnection):
    @override
    def _new_conn(self) -> socket.socket:
        connected = super()._new_conn()
        _WATCH.get().hold(connected)  # before the handshake of TLS
        return connected

    @override
    def request(self, *args: Any, **options: Any) -> None:
        if self.sock is not None:
            _WATCH.get().hold(self.sock)
        super().request(*args, **options)


class _WatchedTls(_Watched, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Watched


class _TlsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _WatchedTls


class RemoteDataService:
    """A data service that is known by its address alone. Thread-safe; makes no second try of its own."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 20):
        """``timeout`` bounds an answer from the connecting to its last byte, or a file's next piece, in seconds."""
        self.url = url.rstrip("/")
        self.host = urlsplit(url).hostname or ""
        self._timeout = timeout
        self._headers = {"Accept-Encoding": "identity"} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._http = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(total=timeout))
        self._http.pool_classes_by_scheme = {"http": _Pool, "https": _TlsPool}

    def start(self, wanted: Wanted, *, fence: int, known: bool = False) -> Export:
        """As the contract says, or ServiceAway, ServiceRefused, FileMismatch."""
        body = {
            "fence": fence,
            "dataset": wanted.dataset,
            "definition": wanted.definition,
            "source": {"name": wanted.source, "revision": wanted.source_revision},
            "columns": [dict(column) for column in wanted.columns],
            "files": [
                {name: value for name, value in asdict(file).items() if value}  # what isn't asked for isn't named
                for file in wanted.files
            ],
        }
        status, answer = self._ask("PUT", f"exports/{wanted.key}", body, {"If-Match": "*"} if known else {})
        if status in (410, 412):
            raise ExportLost
        if status == 409:
            seen = self._parsed(_Fence, answer).fence
        else:
            found = self._parsed(_Export, self._expect(status, answer, 200, 201))
            seen = found.fence
        if seen > fence:  # also from one that lets an older fence through: then it is we who look
            raise NewerFence(seen)
        if seen < fence or status == 409:
            raise ServiceRefused(self.host, "fence")
        return self._export(found, wanted)

    def look(self, wanted: Wanted) -> Export:
        """As the contract says, or ServiceAway, ServiceRefused, FileMismatch."""
        status, answer = self._ask("GET", f"exports/{wanted.key}")
        if status in (404, 410):
            raise ExportLost
        return self._export(self._parsed(_Export, self._expect(status, answer, 200)), wanted)

    def read(self, key: UUID, name: str, start: int = 0) -> Iterator[bytes]:
        """As the contract says, or ServiceAway, ServiceRefused; each piece comes within the time-out."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        path = f"exports/{key}/files/{name}"
        with _Watch(self._timeout) as watch, self._open(watch, "GET", path, headers=headers) as answer:
            if answer.status in (404, 410, 416):
                raise FileMismatch
            if (
                answer.status not in ((200, 206) if start else (200,))
                or answer.headers.get("Content-Encoding", "identity") != "identity"
            ):
                raise ServiceRefused(self.host, _class(answer.status))
            skip = start
            if answer.status == 206:
                if not re.fullmatch(rf"bytes {start}-[0-9]+/[0-9]+", answer.headers.get("Content-Range", "")):
                    raise ServiceRefused(self.host, "range")
                skip = 0
            while piece := answer.read1(PIECE):
                watch.rest()  # while somebody else has it
                yield piece[skip:]
                skip = max(0, skip - len(piece))
                watch.again()

    def delete(self, key: UUID) -> bool:
        """As the contract says, or ServiceAway, ServiceRefused."""
        status, answer = self._ask("DELETE", f"exports/{key}")
        self._expect(status, answer, 202, 204, 404, 410)
        return status != 202

    def newest_fence(self) -> int:
        """The highest fence that it has been asked with, by whatever key; ServiceAway, ServiceRefused."""
        return self._parsed(_Fence, self._expect(*self._ask("GET", "fence"), 200)).fence

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """One request: status and answer, the whole of it within the time-out."""
        with _Watch(self._timeout) as watch, self._open(watch, method, path, body, headers) as answer:
            received = bytearray()
            while piece := answer.read1(PIECE):
                received += piece
                if len(received) > LARGEST_ANSWER:
                    raise ServiceRefused(self.host, "too long")
            return answer.status, bytes(received)

    @contextmanager
    def _open(
        self,
        watch: _Watch,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        sent = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, **(headers or {})} | ({} if body is None else {"Content-Type": "application/json"})
        try:
            answer = self._http.request(
                method, f"{self.url}/{path}", body=sent, headers=headers, redirect=False, preload_content=False
            )
            try:
                if answer.status >= 500 or answer.status in (408, 429):
                    raise ServiceAway(self.host, _class(answer.status), _later(answer.headers.get("Retry-After", "")))
                yield answer
                if watch.stop():  # what was cut off may look like an end
                    raise ServiceAway(self.host, "timeout")
            except BaseException:
                answer.close()
                raise
            answer.release_conn()
        except urllib3.exceptions.NewConnectionError:  # a refused connection, though its parent class is a time-out
            raise ServiceAway(self.host, "unreachable") from None
        except urllib3.exceptions.TimeoutError:
            raise ServiceAway(self.host, "timeout") from None
        except urllib3.exceptions.HTTPError:  # a file that breaks off, too
            raise ServiceAway(self.host, "timeout" if watch.stop() else "unreachable") from None

    def _expect(self, status: int, answer: bytes, *expected: int) -> bytes:
        if status not in expected:
            raise ServiceRefused(self.host, _class(status))
        return answer

    def _parsed[Model: _Answer](self, model: type[Model], answer: bytes) -> Model:
        try:
            return model.model_validate_json(answer)
        except ValidationError:
            raise ServiceRefused(self.host, "unreadable") from None

    def _export(self, found: _Export, wanted: Wanted) -> Export:
        if found.status == "failed":
            code = found.code if found.code in TOLD else "export_failed"
            details: dict[str, Any] = found.details.model_dump(include={"sqlstate", "record"}, exclude_none=True)
            known = {column["source"] for column in wanted.columns}
            if columns := [name for name in (found.details.column, *found.details.others) if name in known]:
                details |= naming(columns)
            return Export(failed=code, details={"host": self.host, **details})
        files = [ExportedFile(**file.model_dump()) for file in found.files]
        if found.status == "done":
            asked = {(file.name, file.format, file.media_type, file.compress, found.records) for file in wanted.files}
            listed = {(file.name, file.format, file.media_type, file.compress, file.records) for file in files}
            if listed != asked or len(files) != len(asked):
                raise FileMismatch
        return Export(
            done=found.status == "done",
            retry_after=min(MAX_PAUSE, max(MIN_PAUSE, found.retry_after)),
            records=found.records,
            bytes=found.bytes,
            total=found.total,
            files=sorted(files, key=lambda file: [each.name for each in wanted.files].index(file.name)),
            unpublished=found.unpublished,
            removed=found.removed,
        )


def _class(status: int) -> str:
    return f"{status // 100}xx"


def _later(text: str) -> int | None:
    """Seconds that a Retry-After asks for; a date says nothing, for it is by another clock."""
    return min(int(text), LONGEST_LATER) if re.fullmatch(r"[0-9]{1,9}", text.strip()) else None
