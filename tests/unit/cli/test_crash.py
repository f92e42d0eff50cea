"""Who is killed: the process that itself says that it has the claim, and nobody else."""

import json
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from chalicelib.cli import crash
from chalicelib.cli.crash import Story
from chalicelib.cli.remote import Refused, Remote

from .conftest import JOB, Server, status


def runs(folder: Path, name: str, pid: int, *lines: dict[str, Any] | str) -> None:
    """An execution environment as its executor describes it: a status file and a live log."""
    log = folder / f"{name}.log"
    log.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    (folder / f"{name}.json").write_text(json.dumps({"pid": pid, "function": name, "log": str(log)}))


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEASEWAY_STACK", str(tmp_path))
    folder = tmp_path / "functions"
    folder.mkdir()
    return folder


def test_the_owner_is_who_logged_the_claim(functions: Path) -> None:
    runs(functions, "api", 10, "START", {"event": "request", "pid": 10})
    runs(functions, "worker-1", 11, {"event": "claimed", "claim": 6, "pid": 11})
    runs(functions, "worker-2", 12, "not json {", "[]", {"event": "claimed", "claim": 7, "pid": 12})

    assert crash.owner({"claim_id": 7}) == (12, "worker-2")
    assert crash.owner({"claim_id": 8}) is None


def test_a_process_that_has_taken_the_place_of_the_owner_is_left_alone(functions: Path) -> None:
    runs(functions, "worker", 13, {"event": "claimed", "claim": 7, "pid": 12})

    assert crash.owner({"claim_id": 7}) is None


def test_what_repeats_itself_is_told_once(
    server: Server, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = iter(range(1, 100))
    monkeypatch.setattr(crash, "monotonic", lambda: next(seconds))

    def event(kind: str, claim: int, attempts: int = 1) -> dict[str, Any]:
        at = "2026-11-29T02:00:01Z"
        return {"at": at, "event": kind, "state": "GET_DATA", "claim_id": claim, "attempts": attempts, "details": {}}

    waits = [event("claimed", 1), event("waiting", 1), event("claimed", 2), event("waiting", 2)]
    server.tell(f"GET /internal/jobs/{JOB}", status("GET_DATA", history=waits))
    server.tell(f"GET /internal/jobs/{JOB}", status("GET_DATA", history=[*waits, event("claimed", 3, attempts=2)]))
    story = Story(Remote(server.url, "t", ""), {JOB: "publication"})

    story.tell()
    story.tell()

    told = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [(line[2], line[-1]) for line in told] == [("claimed", "1"), ("waiting", "1"), ("claimed", "3")]


def test_a_file_of_the_lost_claim_that_is_left_fails_the_demo(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ledger:
        def run(self, *_: object, **__: object) -> list[dict[str, Any]]:
            row = {"job_id": JOB, "kind": "s3_object", "locator": {"key": "k"}, "status": "kept", "removed_at": None}
            return [row | {"claim_id": 13}]

    kept, left = f"exports/{JOB}/14/flights.csv", f"exports/{JOB}/13/flights.csv (upload)"
    monkeypatch.setattr(crash.local, "stack", lambda: None)
    monkeypatch.setattr(crash.local, "run_function", lambda *_: None)

    monkeypatch.setattr(crash, "stored", lambda _: [kept])
    crash.prove(Ledger(), UUID(JOB), 13)  # type: ignore[arg-type]
    monkeypatch.setattr(crash, "stored", lambda _: [kept, left])
    with pytest.raises(Refused, match="Of the lost claim 13 is left"):
        crash.prove(Ledger(), UUID(JOB), 13)  # type: ignore[arg-type]
