"""Folders of YAML: what an office publishes, kept in files, checked as a whole and applied as often as one likes."""

import os
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from . import diff, show
from .local import administer, remote
from .operating import pages
from .publishing import DATASET
from .remote import Refused, Remote
from .sources import source
from .yaml_files import NAME, Fault, Faulty, YamlFile, in_folder, read

if TYPE_CHECKING:
    from chalicelib.db import Database, Sql

DEFAULTS = ("publisher", "contact", "licence", "languages")
"""What a defaults.yaml may say for every definition of its folder that doesn't say it itself."""

MOST = 1_000_000
"""Datasets that are looked through at most."""

OF_A_FILE = {
    "invalid_definition": "",
    "invalid_schedule": "",
    "invalid_catalog": "",
    "unknown_source": "",
    "bad_json": "",
    "payload_too_large": "shorten its texts, or make two datasets of it",
    "not_found": "the token doesn't reach this dataset; an operator makes one that does",
    "gone": "give the file another name",
}
"""Refusals that are about one file, for what it says or because the token doesn't reach it; and what else mends it."""


SILENCE = 5.0
"""Seconds without a word at most, where there is much to do."""

FOR_GOOD = "Delete for good what is to be deleted? An id is never given again, and loaded rows are lost."


@dataclass
class Change:
    """What is to be done about one dataset, the catalogue or a source, and what it comes to."""

    name: str
    what: str = "unchanged"
    lines: list[str] = field(default_factory=list)
    acts: list[Callable[[], object]] = field(default_factory=list)
    compared: "tuple[YamlFile, dict[str, Any]] | None" = None
    """The file and the definition, where its columns are to be compared with its source."""
    refused: bool = False
    """Whether it can't be done now, which its lines say."""

    def of(self, what: str, lines: Iterable[str], act: Callable[[], object]) -> None:
        """Note one more thing to do; what is created is not changed as well."""
        self.what = self.what if self.what == "created" else what
        self.lines += lines
        self.acts.append(act)


@click.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--prune", is_flag=True, help="Also delete datasets without a file here, or end their schedules.")
@click.option("--yes", is_flag=True, help="Delete without a question.")
def apply(folder: Path, dry_run: bool, prune: bool, yes: bool) -> None:
    """Apply a FOLDER of YAML: a definition a file, named like its dataset, with its schedule.

    `defaults.yaml` says publisher, contact, licence and languages once for all that don't say them; `catalog.yaml` is
    what the catalogue says of itself (an operator's; another token leaves it aside). Everything is checked before
    anything is changed, and all errors of all files are told with file, line and column; then each field that changes,
    with its old and new value. Applied again, it changes nothing. What is refused all the same holds up nothing else;
    the exit code is 1 then.

    Columns are compared with the source where this is beside the database, and the connection's secret is set here.

    With --prune, datasets that the token reaches and that have no file here are deleted, after a question, where they
    have no version. What was published stays: the schedule ends, and the command that takes it back is told.

    Examples:
      leaseway apply datasets/ --dry-run
      leaseway apply datasets/
      leaseway apply datasets/ --prune --dry-run
      leaseway apply datasets/ --prune --yes
    """
    server = remote()
    faults: list[Fault] = []
    changes = _planned(server, folder, prune, faults)
    unseen = _compared([change.compared for change in changes if change.compared], faults)
    _stop_at(faults)
    _tell(changes)
    for why in unseen:
        click.echo(f"Not checked: {why}", err=True)
    if not dry_run:
        if not yes and any(change.what == "deleted" for change in changes):
            click.confirm(FOR_GOOD, abort=True, err=True)
        _carry_out(changes)
    click.echo(_sum(changes) + (" Nothing was changed: it was a dry run." if dry_run else ""))
    refused = sum(change.refused for change in changes)
    if refused and not dry_run:
        raise Refused(
            f"{refused} not done, for the reasons above. Apply it again once they are gone: it does the rest."
        )


def _carry_out(changes: Sequence[Change]) -> None:
    """Do all that can be done; what one thing is refused for doesn't hold up the others."""
    for change in _told("Gone through", changes):
        try:
            for act in change.acts:
                act()
        except Refused as refused:
            if _is_of_the_server(refused):
                click.echo(f"Stopped at {change.name}; all before it is done. Apply it again to do the rest.", err=True)
                raise
            change.what, change.refused = "refused", True
            changed = refused.code == "precondition_failed"
            why = "changed meanwhile: run `leaseway apply` again" if changed else refused.format_message()
            click.echo(f"{change.name}: {why}", err=True)


def _told[T](done: str, things: Sequence[T]) -> Iterator[T]:
    """Yield the things; how far that is, is said every few seconds: a thousand files take minutes."""
    said = monotonic()
    for number, thing in enumerate(things):
        if monotonic() - said > SILENCE:
            said = monotonic()
            click.echo(f"{done} {show.amount(number)} of {show.amount(len(things))} …", err=True)
        yield thing


def _is_of_the_server(refused: Refused) -> bool:
    """Whether it is about nothing in particular: the token, or nobody answers who is well and is Leaseway."""
    status = int(refused.body.get("status", 500))
    return status in (401, 429) or status >= 500


def _planned(server: Remote, folder: Path, prune: bool, faults: list[Fault]) -> list[Change]:
    paths = in_folder(folder)
    files = _read(paths, faults)
    # What may stand in a defaults.yaml that can't be read isn't missing elsewhere.
    unread = DEFAULTS if "defaults" in {path.stem for path in paths} - files.keys() else ()
    defaults, catalog = files.pop("defaults", None), files.pop("catalog", None)
    if not files and not catalog and not faults:
        raise Refused(
            f"There is no YAML file in {folder}: write {folder / 'DATASET.yaml'}; `leaseway init` begins one."
        )
    for name in defaults.content if defaults else ():
        if defaults and name not in DEFAULTS:
            faults.append(defaults.fault(name, f"can't stand here; {_nearest(name, DEFAULTS)}"))
    listed = server.get("/schedules")["schedules"]
    schedules = {found["dataset"]: found["cadence"] for found in listed if found["dataset"]}
    changes = [_of_the_catalog(server, catalog, faults)] if catalog else []
    for dataset, file in _told("Checked", list(files.items())):
        if DATASET.fullmatch(dataset):
            changes.append(_of_a_dataset(server, dataset, file, defaults, unread, schedules.get(dataset), faults))
        else:
            what = "must be named like its dataset: lower-case letters, digits and hyphens, at most 63"
            faults.append(file.fault("", what))
    orphans = sorted(schedules.keys() - files.keys())
    if prune:
        changes += _orphans(server, files, schedules)
    elif orphans and not faults:  # a file that can't be read is one all the same
        click.echo(f"Scheduled, with no file here: {', '.join(orphans)}. --prune ends their schedules.", err=True)
    return changes


def _compared(definitions: "Sequence[tuple[YamlFile, dict[str, Any]]]", faults: list[Fault]) -> list[str]:
    """Compare columns with the sources, where this is beside the database; what couldn't be compared, and why."""
    if not definitions:
        return []
    if os.environ.get("LEASEWAY_URL"):
        return ["whether the sources have these columns. `leaseway source check SOURCE` lists what one has."]
    from .comparing import compare

    found, unseen = compare(definitions)
    faults += found
    return [f"{', '.join(sources)}. {why}" for why, sources in unseen.items()]


def _orphans(server: Remote, files: Container[str], schedules: Mapping[str, Any]) -> Iterator[Change]:
    """What becomes of the datasets that have no file here."""
    for found in pages(server, "/datasets", "datasets", MOST):
        dataset, version = found["dataset"], found["version"]
        if dataset in files:
            continue
        change = Change(dataset, "left")
        address = f"/datasets/{dataset}"
        if version is None and (active := server.get(f"{address}/status")["active"]):
            change.what, change.refused = "busy", True
            change.lines.append(f"not deleted while its {active['pipeline']} is active, job {active['id']}")
        elif version is None:
            change.of("deleted", ["it has no version; its id is never given again"], _call(server, "DELETE", address))
        elif dataset in schedules:
            ends = f"- schedule: {show.cadence(schedules[dataset])}"
            change.of("pruned", [ends], _call(server, "DELETE", f"{address}/schedule"))
        if version is not None:
            change.lines.append(f"`leaseway withdraw {dataset} {version['number']}` takes its newest version back")
        yield change


def _read(paths: Sequence[Path], faults: list[Fault]) -> dict[str, YamlFile]:
    files: dict[str, YamlFile] = {}
    for path in _told("Read", paths):
        try:
            file = read(path)
        except Faulty as faulty:
            faults += faulty.faults
            continue
        if path.stem in files:
            faults.append(file.fault("", f"is the same as {files[path.stem].path.name}; keep one of them"))
        files[path.stem] = file
    return files


def _of_the_catalog(server: Remote, file: YamlFile, faults: list[Fault]) -> Change:
    change = Change("catalog.yaml")
    try:
        checked = _check(server, "/internal/catalog", file.content, faults, file.fault)
    except Refused as refused:
        if refused.code != "forbidden":
            raise
        change.what, change.lines = "left", ["it takes an operator's token"]
        return change
    if checked and checked["changes"]:
        change.of("changed", _lines(checked), _call(server, "PUT", "/internal/catalog", file.content))
    return change


def _lines(checked: Mapping[str, Any]) -> list[str]:
    """What would change, a line for each field; an older server tells the names alone."""
    found = checked.get("differences", [])
    lines = [line for each in found for line in diff.lines(each["field"], each["from"], each["to"])]
    return lines or [f"~ {name}" for name in checked["changes"]]


def _of_a_dataset(
    server: Remote,
    dataset: str,
    file: YamlFile,
    defaults: YamlFile | None,
    unread: Container[str],
    scheduled: dict[str, Any] | None,
    faults: list[Fault],
) -> Change:
    change = Change(dataset)
    content = (defaults.content if defaults else {}) | file.content
    schedule = content.pop("schedule", None)
    for name in get_close_matches("schedule", content, cutoff=0.8):  # the server knows a definition's fields alone
        faults.append(file.fault(name, "is no field here; did you mean schedule?"))
        del content[name]

    def fault(where: str, detail: str) -> Fault | None:
        top = where.partition(".")[0].partition("[")[0]
        if top in unread and top not in file.content:
            return None
        told = defaults if defaults and top in defaults.content and top not in file.content else file
        return told.fault(where, detail)

    address = f"/datasets/{dataset}/definition"
    if checked := _check(server, address, content, faults, fault):
        # Over what was compared alone, for somebody else may apply at the same time; an older server tells no ETag.
        if checked["revision"] is None:
            told = f"+ {show.many(len(content['columns']), 'column')} of source {content['source']}"
            change.of("created", [told], _call(server, "PUT", address, content, {"If-None-Match": "*"}))
        elif checked["changes"]:
            condition = {"If-Match": checked["etag"]} if "etag" in checked else None
            change.of("changed", _lines(checked), _call(server, "PUT", address, content, condition))
        if any(name.startswith(("columns", "source")) for name in checked["changes"]):
            change.compared = (file, content)
    address = f"/datasets/{dataset}/schedule"
    before = scheduled and show.cadence(scheduled)
    if schedule is None:
        if scheduled:
            change.of("changed", [f"- schedule: {before}"], _call(server, "DELETE", address))
    elif not isinstance(schedule, dict):
        faults.append(file.fault("schedule", 'must be names and values, like {every: day, at: "02:00"}'))
    else:
        checked = _check(
            server, address, schedule, faults, lambda where, detail: file.fault(f"schedule.{where}".strip("."), detail)
        )
        if checked and checked["cadence"] != scheduled:
            after = show.cadence(checked["cadence"])
            told = f"~ schedule: {before} → {after}" if scheduled else f"+ schedule: {after}"
            change.of("changed", [told], _call(server, "PUT", address, schedule))
    return change


def _check(
    server: Remote,
    address: str,
    content: dict[str, Any],
    faults: list[Fault],
    fault: Callable[[str, str], Fault | None],
) -> dict[str, Any] | None:
    """What the server says would change; what it refuses becomes faults of the file."""
    try:
        checked: dict[str, Any] = server.ask("PUT", address, json=content, dry_run="true").json()
        return checked
    except Refused as refused:
        if refused.code not in OF_A_FILE:
            raise
        body = refused.body
        one = {"field": body.get("field", ""), "detail": body.get("detail") or body["title"]}
        if remedy := OF_A_FILE[refused.code]:
            one["detail"] = f"{one['detail'].rstrip('.')}: {remedy}"
        for error in body.get("errors") or [one]:
            # Alone, the sentence names the field itself.
            where = str(error["field"])
            told = fault(where, str(error["detail"]).removeprefix(f"'{where}'").strip(" :"))
            if told and told not in faults:  # what is wrong with a default is wrong with every dataset
                faults.append(told)
        return None


def _call(
    server: Remote, method: str, address: str, body: object = None, condition: Mapping[str, str] | None = None
) -> Callable[[], object]:
    return lambda: server.ask(method, address, json=body, condition=condition)


def _nearest(name: str, known: Sequence[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(known) or 'none'}"


def _stop_at(faults: list[Fault]) -> None:
    if faults:
        for fault in sorted(faults):
            click.echo(str(fault), err=True)
        click.echo(f"{len(faults)} to mend; nothing was changed.", err=True)
        raise click.exceptions.Exit(1)


def _tell(changes: Sequence[Change]) -> None:
    """What is to be done, each thing with its lines; what stays as it is is only counted."""
    for change in changes:
        if change.what != "unchanged":
            click.echo(f"{change.name}: {change.what}")
            for line in change.lines:
                click.echo(f"  {line}")


def _sum(changes: Sequence[Change]) -> str:
    counted = Counter(change.what for change in changes)
    return ", ".join(f"{number} {what}" for what, number in sorted(counted.items())) + "."


@source.command("apply")
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
def source_apply(folder: Path, dry_run: bool) -> None:
    """Register the sources of a FOLDER of YAML: a source a file, named like it.

    It says connection and relation or query; or, of what is loaded, `store` with the dataset's id.

    Everything is checked before anything is changed. Applied again, it changes nothing.

    Examples:
      leaseway source apply sources/ --dry-run
      leaseway source apply sources/
    """
    from psycopg import Rollback

    from chalicelib.datasets import Invalid, registry

    _, database = administer()
    faults: list[Fault] = []
    files = _read(in_folder(folder), faults)
    if not files and not faults:
        raise Refused(f"There is no YAML file in {folder}: write {folder / 'SOURCE.yaml'}.")
    connections = [known["name"] for known in registry.connections(database)]
    known = {known["name"]: known for known in registry.sources(database)}
    changes = []
    with database.transaction() as tx:
        for name, file in files.items():
            said = _source_of(name, file, connections, faults)
            if said is None:
                continue
            change = Change(name)
            try:
                revision = said(tx)
            except Invalid as invalid:
                faults += [file.fault(*fault) for fault in invalid.faults]
                continue
            if name not in known:
                change.what = "created"
            elif revision != known[name]["revision"]:
                change.what = "changed"
            change.lines += _lines_of_a_source(known.get(name, {}), registry.source(tx, name) or {})
            changes.append(change)
        _stop_at(faults)  # what was registered so far goes with the transaction
        if dry_run:
            raise Rollback
    _tell(changes)
    for line in _unread(database, {name: file.content for name, file in files.items()}):
        click.echo(f"! {line}", err=True)
    click.echo(_sum(changes) + (" Nothing was changed: it was a dry run." if dry_run else ""))


def _lines_of_a_source(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """What differs between two revisions of a source; none stands for one that isn't there yet."""
    if before and before["revision"] != after["revision"]:
        yield f"~ revision: {before['revision']} → {after['revision']}"
    for name in ("connection", "relation", "query", "store", "file"):
        old, new = ("uploaded" if name == "file" and row.get(name) else row.get(name) for row in (before, after))
        if old != new:
            yield from diff.lines(name, old, new)


def _unread(database: "Database", said: dict[str, dict[str, Any]]) -> Iterator[str]:
    """What of these sources can't be read from here, and what couldn't be looked at: they are registered all the same.

    A table may come later, and whoever registers it needn't have its secret.
    """
    from chalicelib.datasets import registry
    from chalicelib.exports.check import Wanted, unread

    for connection in registry.connections(database):
        wanted = [
            Wanted(name, content.get("relation"), content.get("query"))
            for name, content in said.items()
            if content.get("connection") == connection["name"]
        ]
        if not wanted:
            continue
        if dsn := os.environ.get(connection["secret"]):
            yield from unread(dsn, wanted)
        else:
            yield (
                f"Not checked, for {connection['secret']} isn't set here:"
                f" {', '.join(one.source for one in wanted)}. `leaseway source check SOURCE` looks at one."
            )


def _source_of(name: str, file: YamlFile, connections: list[str], faults: list[Fault]) -> "Callable[[Sql], int] | None":
    """What registers the source that a file says; None where it has faults."""
    from chalicelib.datasets import registry

    fields = ("connection", "relation", "query", "store")
    before = len(faults)
    if not NAME.fullmatch(name):
        faults.append(file.fault("", "must be named like its source: lower-case letters, digits, - and _"))
    for given, value in file.content.items():
        if given not in fields:
            faults.append(file.fault(given, f"is no field here; {_nearest(given, fields)}"))
        elif not isinstance(value, str):
            faults.append(file.fault(given, "must be a text"))
    connection, store = file.content.get("connection"), file.content.get("store")
    if store is not None:
        faults += [
            file.fault(given, "can't stand beside store")
            for given in ("connection", "relation", "query")
            if given in file.content
        ]
    elif connection is None:
        faults.append(file.fault("connection", "is missing; `leaseway connection list` has them"))
    elif isinstance(connection, str) and connection not in connections:
        faults.append(file.fault("connection", f"isn't known; {_nearest(connection, connections)}"))
    if len(faults) > before:
        return None
    if store is not None:
        return lambda tx: registry.register_store(tx, name, store)
    relation, query = file.content.get("relation"), file.content.get("query")
    return lambda tx: registry.register_source(tx, name, str(connection), relation, query)


@click.command()
@click.argument("source_name", metavar="SOURCE")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), required=False)
@click.option("--without", metavar="COLUMN", multiple=True, help="Leave this column out; once for each.")
def init(source_name: str, file: Path | None, without: tuple[str, ...]) -> None:
    """Begin the definition of a dataset: write FILE (SOURCE.yaml) with the columns of a registered source.

    Types and counts are found by looking at the source from here, where its secret must be set as it is for the
    functions. A column of a type that isn't published is refused, unless it is left out. What is left to fill in,
    `leaseway apply` names.

    Examples:
      leaseway init trees
      leaseway init trees datasets/trees.yaml
      leaseway init trees --without location --without owner
    """
    from .beginning import begin

    file = file or Path(f"{source_name.replace('_', '-')}.yaml")
    if file.exists():
        raise Refused(f"{file} exists; it stays as it is.")
    text, told = begin(source_name, without)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    click.echo(f"Written to {file}: {told}. Fill in what is empty, then `leaseway apply {file.parent}`.")


COMMANDS = (apply, init)
