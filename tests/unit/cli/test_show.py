"""How progress and tables look on a terminal, also on a narrow one."""

import sys
from io import StringIO

import pytest
from rich.console import Console

from chalicelib.cli import show
from chalicelib.cli.remote import Refused

from .conftest import status


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> StringIO:
    written = StringIO()
    out = Console(file=written, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(show, "console", lambda: out)
    return written


def test_the_bar_shows_state_records_bytes_and_what_it_waits_for(terminal: StringIO) -> None:
    half = {"records": 168_388, "bytes": 144_000_000, "total": 336_776}
    waiting = {"code": "storage_unreachable", "since": "2026-11-29T02:00:00Z", "until": "2026-11-29T02:10:00Z"}

    with show._Bar(show.console()) as bar:
        bar.move(status("GET_DATA", progress=half, attempts=2, waiting_for=waiting))
        bar.refresh()
        drawn = terminal.getvalue()
        bar.move(status("PUBLISHED", progress=half | {"records": 336_776}))

    lines = [line.strip() for line in drawn.replace("\r", "\n").splitlines()]
    assert any(
        "GET_DATA (attempt 2)" in line and "168,388 of 336,776 records" in line and "144.0 MB" in line for line in lines
    )
    assert any("waits for storage unreachable, looks again at 02:10:00 UTC" in line for line in lines)
    assert "PUBLISHED" in terminal.getvalue().removeprefix(drawn)


def test_a_header_is_shown_on_one_line_and_not_to_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert show.header("Höhe (m)") == "Höhe (m)"
    assert show.header("Einwohner\r\n\x1b[2J2023") == r"Einwohner\r\n\x1b[2J2023"
    assert show.header("x" * 101) == "x" * 100 + "…"
    assert show.details({"column": "a\nb", "relation": "x" * 200}) == rf"column a\nb, relation {'x' * 200}"
    assert show.details({"column": "a", "others": ["b\n", "c"], "more": 2}) == r"column a, others b\n; c, more 2"


def test_a_failure_is_raised_after_the_bar(terminal: StringIO) -> None:
    failure = {"code": "cancelled", "sentence": "Somebody cancelled it.", "details": {}}

    with pytest.raises(Refused, match=r"Somebody cancelled it. \[cancelled\]"):
        show.watch([status("REQUESTED"), status("FAILED", failure=failure)])


def test_without_a_terminal_an_unchanged_status_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    show.watch([status("GET_DATA"), status("GET_DATA"), status("PUBLISHED")])

    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["GET_DATA", "PUBLISHED"]


@pytest.mark.parametrize("width", [160, 80, 60])
def test_an_id_in_a_table_can_be_copied_however_narrow_the_terminal_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], width: int
) -> None:
    out = Console(file=sys.stdout, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(show, "console", lambda: out)
    job = "019ad0c2-6a41-7cc3-8f1e-0a4c8f1f5a10"
    why = "The source's database doesn't answer. [source_unreachable: step EXPORT]"

    show.table(
        ("job", "pipeline", "about", "failed", "why"), [(job, "publication", "flights", "2026-11-29", why)] * 2, ""
    )

    assert capsys.readouterr().out.count(job) == 2


@pytest.mark.parametrize("width", [30, 80])
def test_a_long_reason_is_cut_where_the_terminal_ends(
    width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = Console(file=sys.stdout, force_terminal=True, width=width, color_system=None)
    monkeypatch.setattr(show, "console", lambda: out)

    show.table(("job", "pipeline", "why"), [("7" * 15, "load", "because " * 40)], "", cut=True)

    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == (2 if width == 80 else 3)
    assert all(len(line.rstrip()) <= width for line in lines)
    assert lines[-1].rstrip().endswith("…")
