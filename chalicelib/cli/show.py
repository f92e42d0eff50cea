"""How things look on a terminal, and as plain lines where there is none."""

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

from .remote import UNFINISHED, Refused

COLOURS = {"queued": "yellow", "running": "cyan", "succeeded": "green", "failed": "red"}


def console() -> Console:
    """Return a console for the present standard output."""
    return Console(file=sys.stdout, highlight=False, soft_wrap=True)


def as_json(value: object) -> None:
    """Print for machines."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, default=str))


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], nothing: str, *, cut: bool = False) -> None:
    """Print rows below their headings; with none, say so. With ``cut`` the last column ends where the terminal does."""
    listed = [["–" if cell is None or cell == "" else str(cell) for cell in row] for row in rows]
    if not listed:
        click.echo(nothing)
        return
    out = console()
    if out.is_terminal:
        if cut:
            taken = sum(max(len(cell) for cell in column) + 2 for column in zip(columns, *listed, strict=True))
            taken -= max(len(row[-1]) for row in (columns, *listed)) + 2
            if (room := out.width - taken) < 20:  # each cell has a line of its own, below
                room = out.width - max(map(len, columns)) - 2
            for row in listed:
                row[-1] = row[-1] if len(row[-1]) <= room else row[-1][: room - 1] + "…"
        shown = Table(box=None, pad_edge=False, header_style="bold")
        for name in columns:
            shown.add_column(name, overflow="fold")
        for row in listed:
            shown.add_row(*(Text(cell, COLOURS.get(cell, "")) for cell in row))
        if out.measure(shown, options=out.options.update_width(10_000)).minimum <= out.width:
            out.print(shown)
        else:  # an id that is cut or folded can't be copied
            for number, row in enumerate(listed):
                if number:
                    click.echo()
                facts(zip(columns, row, strict=True))
        return
    # Without a terminal nothing is folded or cut: a line is a row, as `grep` and `cut` want it.
    widths = [max(len(cell) for cell in column) for column in zip(columns, *listed, strict=True)]
    for row in [list(columns), *listed]:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def facts(pairs: Iterable[tuple[str, object]]) -> None:
    """Print names with their values, leaving out what isn't known."""
    known = [(name, str(value)) for name, value in pairs if value is not None and value != ""]
    width = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        click.echo(f"{click.style(name.ljust(width), dim=True)}  {value}")


def header(text: str) -> str:
    """A column's name on one line, the first hundred characters: a file's header may hold nearly anything."""
    shown = "".join(character if character.isprintable() else repr(character)[1:-1] for character in text[:100])
    return shown + "…" * (len(text) > 100)


def amount(number: int | None) -> str | None:
    """336776 as 336,776."""
    return None if number is None else f"{number:,}"


def many(number: int, what: str) -> str:
    """1 row, 2 rows."""
    return f"{amount(number)} {what}{'' if number == 1 else 's'}"


def size(octets: int | None) -> str | None:
    """Bytes as people say them: 31.2 MB."""
    if octets is None:
        return None
    if octets < 1000:
        return f"{octets} B"
    scale, unit = next((s, u) for s, u in ((1e3, "kB"), (1e6, "MB"), (1e9, "GB")) if octets < s * 999.95 or u == "GB")
    return f"{octets / scale:.1f} {unit}"


def span(seconds: float) -> str:
    """A duration in at most two units: 3 d 4 h."""
    whole = int(abs(seconds))
    if whole < 60:
        return f"{whole} s"
    for one, name, parts, part in ((86400, "d", 3600, "h"), (3600, "h", 60, "min"), (60, "min", 1, "s")):
        if whole >= one:
            first, rest = whole // one, whole % one // parts
            return f"{first} {name}" + (f" {rest} {part}" if rest else "")
    raise AssertionError


def moment(text: str | None, now: datetime | None = None) -> str | None:
    """A time with how far away it is: 2026-11-29 02:00 UTC (in 3 h 20 min)."""
    if not text:
        return None
    then = datetime.fromisoformat(text).astimezone(UTC)
    away = ((now or datetime.now(UTC)) - then).total_seconds()
    near = f"{span(away)} ago" if away >= 0 else f"in {span(away)}"
    return f"{then:%Y-%m-%d %H:%M} UTC ({near})"


def subject(job: Mapping[str, Any]) -> str:
    """What a job is about, in few words."""
    about = job.get("subject") or {}
    return str(about.get("dataset") or ", ".join(f"{name}={value}" for name, value in about.items()))


def waits(status: Mapping[str, Any]) -> str:
    """What a job waits for, as a clause."""
    waiting = status.get("waiting_for")
    if not waiting:
        return ""
    if isinstance(waiting, str):
        return f"waits for {waiting}"
    words = f"waits for {str(waiting.get('code', '')).replace('_', ' ')}"
    return words + (f", looks again at {waiting['until'][11:19]} UTC" if waiting.get("until") else "")


def failure(status: Mapping[str, Any]) -> str:
    """Why a job failed: the sentence, its code and the details that help."""
    failed = status.get("failure") or {}
    # Bad rows are a table of their own.
    more = details({name: value for name, value in (failed.get("details") or {}).items() if name != "rows"})
    return f"{failed['sentence']} [{failed['code']}{': ' + more if more else ''}]"


def bad_rows(rows: Sequence[Mapping[str, Any]], records: int | None) -> None:
    """Rows that can't be loaded, one a line, and how many there are; nothing where none is told."""
    if not rows:
        return
    columns = ("row", "column", "reason", *(("value",) if any("value" in row for row in rows) else ()))
    table(columns, [[row.get(name) for name in columns] for row in rows], "")
    if records and records > len(rows):
        click.echo(f"These are the first {len(rows)} of {amount(records)} rows that don't fit.")


def bad_rows_of(job: Mapping[str, Any]) -> None:
    """The rows that a load failed for, below its facts."""
    found = (job.get("failure") or {}).get("details") or {}
    if found.get("rows"):
        click.echo()
        bad_rows(found["rows"], found.get("records"))


def failure_briefly(status: Mapping[str, Any]) -> str:
    """Why a job failed, for a line of a list: what tells failures apart comes first, and of lists how long they are."""
    failed = status.get("failure") or {}
    counted = {
        name: len(value) if isinstance(value, list) else value for name, value in (failed.get("details") or {}).items()
    }
    more = details(counted)
    return f"{failed['code']}{f' ({more})' if more else ''}: {failed['sentence']}"


def details(found: Mapping[str, Any] | None) -> str:
    """Details on one line."""
    return ", ".join(f"{name} {_detail(name, value)}" for name, value in (found or {}).items())


def _detail(name: str, value: object) -> str:
    """A detail; of a list each part, as `row 2 column id reason missing`."""
    if name in ("column", "others") and isinstance(value, str):
        return header(value)
    if isinstance(value, list):
        return "; ".join(_detail(name, part) for part in value)
    if isinstance(value, Mapping):
        return " ".join(f"{key} {part}" for key, part in value.items())
    return str(value)


def cadence(schedule: Mapping[str, Any]) -> str:
    """When a schedule runs, as a phrase: every month on day 31 at 02:00 Europe/Berlin."""
    how = schedule.get("cadence") or schedule
    on = how.get("on")
    day = "" if on is None else f" on day {on}" if isinstance(on, int) else f" on {on}"
    return f"every {how['every']}{day} at {how['at']} {how['zone']}"


def doing(status: Mapping[str, Any]) -> str:
    """A job's progress as one line."""
    progress = status.get("progress") or {}
    parts = [str(status["state"])]
    if progress.get("records"):
        of = f" of {amount(progress['total'])}" if progress.get("total") else ""
        parts.append(f"{amount(progress['records'])}{of} records")
    if progress.get("bytes"):
        parts.append(str(size(progress["bytes"])))
    if (status.get("attempts") or 0) > 1:
        parts.append(f"attempt {status['attempts']}")
    if waits(status):
        parts.append(waits(status))
    return ", ".join(parts)


def watch(statuses: Iterable[dict[str, Any]], *, quiet: bool = False) -> dict[str, Any]:
    """Show a job's progress until it has finished, and return its last status; a failure is raised."""
    last: dict[str, Any] = {}
    with _progress(quiet) as say:
        for last in statuses:
            say(last)
    if last.get("status") == "failed":
        failed = last.get("failure") or {}
        found = failed.get("details") or {}
        if not quiet:
            bad_rows(found.get("rows") or [], found.get("records"))
        raise Refused(failure(last), failed.get("code"), found)
    return last


Say = Callable[[Mapping[str, Any]], None]


@contextmanager
def _progress(quiet: bool) -> Iterator[Say]:
    """A bar on a terminal, a line for each change elsewhere."""
    out = console()
    if quiet:
        yield lambda _: None
    elif not out.is_terminal:
        began, said = time.monotonic(), ""

        def line(status: Mapping[str, Any]) -> None:
            nonlocal said
            if doing(status) != said:
                said = doing(status)
                click.echo(f"{span(time.monotonic() - began):>10}  {said}")

        yield line
    else:
        with _Bar(out) as bar:
            yield bar.move


class _Bar(Progress):
    """State, bar, records, bytes and elapsed time; below it what the job waits for."""

    def __init__(self, out: Console) -> None:
        names = ("state", "done", "size")
        state, done, octets = (TextColumn("{task.fields[" + name + "]}") for name in names)
        columns = (
            SpinnerColumn(),
            state,
            BarColumn(bar_width=16),
            done,
            octets,
            TimeElapsedColumn(Column(min_width=7)),
        )
        self._waits = ""
        super().__init__(*columns, console=out)
        self._task = self.add_task("", total=None, state="", done="", size="")

    def get_renderables(self) -> Iterator[RenderableType]:
        """Give rich what to draw."""
        yield self.make_tasks_table(self.tasks)
        if self._waits:
            yield Text(f"  {self._waits}", style="dim")

    def move(self, status: Mapping[str, Any]) -> None:
        """Show a newer status."""
        progress = status.get("progress") or {}
        done, total = progress.get("records") or 0, progress.get("total")
        ended = status["status"] not in UNFINISHED
        attempt = f" (attempt {status['attempts']})" if (status.get("attempts") or 0) > 1 else ""
        self._waits = waits(status)
        self.update(
            self._task,
            total=(total or done or 1) if ended else total,
            completed=(total or done or 1) if ended else done,
            state=f"{status['state']}{attempt}",
            done=f"{amount(done)}{f' of {amount(total)}' if total else ''} records" if done else "",
            size=size(progress.get("bytes")) if progress.get("bytes") else "",
        )


def dataset_status(document: Mapping[str, Any]) -> None:
    """Answer "why isn't it newer?" on one screen."""
    version, schedule, active, failed = (document.get(name) for name in ("version", "schedule", "active", "failure"))
    pause, health = document.get("pause"), document["health"]
    rows: list[tuple[str, object]] = [
        ("dataset", document["dataset"]),
        ("version", "none: each was withdrawn" if document.get("withdrawn") else "none yet"),
        ("definition", f"revision {document['definition']['revision']}"),
        ("schedule", "none"),
        ("active", "nothing"),
    ]
    if version:
        old = moment(version["issued_at"])
        rows[1] = ("version", f"{version['number']}, {amount(version['records'])} records, published {old}")
        rows[2] = ("definition", f"revision {version['definition_revision']} is published")
        if document["definition"]["revision"] > version["definition_revision"]:
            rows[2] = (rows[2][0], f"{rows[2][1]}, {document['definition']['revision']} is the newest")
    if schedule:
        rows[3:4] = [
            ("schedule", cadence(schedule)),
            ("next run", moment(schedule.get("next_due_at"))),
            ("last run", moment(schedule.get("last_due_at"))),
            ("not run", (schedule.get("last_refusal") or {}).get("sentence")),
        ]
    if (warnings := (version or {}).get("warnings") or {}).get("count"):
        said = f"{amount(warnings['count'])}; DCAT-AP recommends to say {_ten(warnings['about'])}"
        rows.insert(3, ("warnings", said))
    if removed := (version or {}).get("characters_removed"):
        rows.insert(3, ("removed", f"{many(removed, 'character')} that XML can't hold, from the XML file"))
    if left_out := (version or {}).get("unpublished_columns"):
        said = f"{_ten(left_out)}: columns of the source that the definition doesn't name"
        rows.insert(3, ("not published", said))
    taken = document.get("last_withdrawal")
    if taken and not (version and version["issued_at"] > taken["withdrawn_at"]):
        rows.insert(2, ("withdrawn", f"version {taken['version']}, {moment(taken['withdrawn_at'])}"))
    if active:
        rows[-1] = ("active", f"{active['pipeline']} {active['id']}")
        rows += [
            ("doing", doing(active)),
            ("since", moment(active.get("started_at") or active["accepted_at"])),
            ("waiting since", moment((active.get("waiting_for") or {}).get("since"))),
        ]
    if (loads := document.get("loads") or {}).get("unfinished"):
        rows.append(("loads", f"{loads['unfinished']} not done yet, the oldest since {moment(loads['since'])}"))
    if failed:
        rows += [
            ("last failure", f"{moment(failed['finished_at'])}, {failed['pipeline']} {failed['id']}"),
            ("because", failure(failed)),
            ("to mend it", _mending(document["dataset"], failed)),
        ]
    if pause:
        rows.append(
            ("paused", f"{pause['pipeline']} until {moment(pause['until'])}; `leaseway resume '{pause['pipeline']}'`")
        )
    rows += [
        (name.replace("_", " "), f"last finished {moment(at)}" if at else "never finished so far")
        for name, at in document["last_finished"].items()
    ]
    rows += [("not well", reason) for reason in health["reasons"]]
    facts(rows)


def _mending(dataset: str, failed: Mapping[str, Any]) -> str | None:
    """What to do about a failed publication; where the definition is wrong, publishing alone fails again."""
    command = failed.get("command")
    why = failed.get("failure") or {}
    # A database, a relation or a query that is wrong is no matter of the definition; the sentence says whose.
    elsewhere = (why.get("details") or {}).get("sqlstate") not in (None, "42703")
    if command and why.get("code") in ("source_changed", "not_conformant") and not elsewhere:
        return (
            f"change the definition (`leaseway definition get {dataset}`, or its file; `leaseway source check SOURCE`"
            f" lists the columns that there are), apply it, then {command}"
        )
    return command


def _ten(names: Sequence[str]) -> str:
    return ", ".join(map(header, names[:10])) + (f" and {len(names) - 10} more" if len(names) > 10 else "")


def heading(text: str) -> None:
    """Print what begins."""
    click.echo(click.style(text, bold=True) + "\n")
