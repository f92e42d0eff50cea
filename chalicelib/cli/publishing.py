"""Commands of those who publish: definitions, publications, withdrawals, status, schedules. All over HTTP."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any
from uuid import uuid4

import click
import httpx

from . import show
from .local import remote
from .remote import Refused, Remote

machine = click.option("--json", "machine", is_flag=True, help="Print JSON for machines.")
DATASET = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class DatasetId(click.ParamType[str]):
    """A dataset's id, as it stands in every address."""

    name = "dataset"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Refuse what can't be an id before anything is sent."""
        if not DATASET.fullmatch(value):
            self.fail(f"{value!r} is no dataset id: lower-case letters, digits and hyphens, at most 63.", param, ctx)
        return str(value)


dataset_argument = click.argument("dataset", type=DatasetId())


@click.command()
@dataset_argument
@click.option("--wait", is_flag=True, help="Show progress until it has ended; a failure exits with 1.")
@click.option("--accept-drop", is_flag=True, help="However few records there are: it is right so, this once.")
@click.option(
    "--key", help="For scripts: the same key within seven days is the same publication, whatever became of it."
)
@machine
def publish(dataset: str, wait: bool, accept_drop: bool, key: str | None, machine: bool) -> None:
    """Publish DATASET: a new version of its files and its catalogue entry.

    The server answers at once and does the work later. Where a publication of the dataset is active already, it is that
    one; a newer definition, or an accepted drop, is then published after it, and --wait waits for that. Ctrl-C ends the
    watching, not the publication.

    Examples:
      leaseway publish flights
      leaseway publish flights --wait
      leaseway publish flights --wait --json > status.json
      leaseway publish flights --accept-drop
      leaseway publish flights --key "nightly-$(date +%F)"
    """
    server = remote()
    accept = "true" if accept_drop else None
    answer = server.ask(
        "POST",
        f"/datasets/{dataset}/publications",
        json={},
        idempotency_key=key if key is not None else str(uuid4()),
        accept_drop=accept,
    )
    status = answer.json()
    if not wait:
        if machine:
            show.as_json(status)
            return
        click.echo(f"Accepted as job {status['id']}: {show.doing(status)}")
        if status["follow_up"]:
            click.echo("It was active already; what is newer about it is published after it.")
        click.echo(f"Look with `leaseway status {dataset}`, or at {answer.headers['Location']}")
        return
    last = until_it_ends(server, dataset, answer, quiet=machine)
    if machine:
        show.as_json(last)
        return
    click.echo(f"Published version {last['version']}: {server.url}/datasets/{dataset}")


@click.command()
@dataset_argument
@click.argument("version", type=click.IntRange(1))
@click.option("--wait", is_flag=True, help="Show progress until it has ended; a failure exits with 1.")
@click.option("--yes", is_flag=True, help="Don't ask.")
@machine
def withdraw(dataset: str, version: int, wait: bool, yes: bool, machine: bool) -> None:
    """Withdraw VERSION of DATASET: its files are deleted, its address says that it is gone, its number is never reused.

    The catalogue falls back to the version before, or the dataset leaves it. There is no way back; a second time
    changes nothing. It asks before it does so; a script says --yes.

    Examples:
      leaseway withdraw flights 3
      leaseway withdraw flights 3 --wait --yes
    """
    server = remote()
    if not yes and _stands(server, dataset, version):
        click.confirm(f"Withdraw version {version} of {dataset} for good, and delete its files?", abort=True, err=True)
    answer = server.ask("DELETE", f"/datasets/{dataset}/versions/{version}")
    status = until_it_ends(server, dataset, answer, quiet=machine) if wait else answer.json()
    if machine:
        show.as_json(status)
    elif status["status"] == "succeeded":
        click.echo(f"Version {version} of {dataset} is withdrawn.")
    else:
        click.echo(f"Accepted as job {status['id']}: {show.doing(status)}")
        click.echo(f"Look with `leaseway status {dataset}`, or at {answer.headers['Location']}")


def _stands(server: Remote, dataset: str, version: int) -> bool:
    """Whether a version is published; one that never was is refused, one that is withdrawn isn't asked about."""
    try:
        server.get(f"/datasets/{dataset}/versions/{version}")
    except Refused as refused:
        if refused.code == "gone":
            return False
        raise
    return True


def until_it_ends(server: Remote, dataset: str, accepted: httpx.Response, *, quiet: bool = False) -> dict[str, Any]:
    """Show the progress of what was asked for to its end; who interrupts the watching hears that the work goes on.

    Where the job was active already and its follow-up does what was asked for, that one's end counts.
    """
    job = accepted.json()

    def statuses() -> Iterator[dict[str, Any]]:
        nonlocal job
        follows = job["follow_up"]
        for job in server.follow(accepted.headers["Location"]):
            yield job
        if follows:
            follow_up = _follow_up(server, dataset, job["id"])
            for job in server.follow(f"/publications/{follow_up}"):
                yield job

    try:
        return show.watch(statuses(), quiet=quiet)
    except KeyboardInterrupt:
        click.echo(
            f"\nThe {job['pipeline']} goes on. Look with `leaseway status {dataset}`;"
            f" end it with `leaseway jobs cancel {job['id']}`.",
            err=True,
        )
        raise click.exceptions.Exit(130) from None


def _follow_up(server: Remote, dataset: str, ended: str) -> str:
    """The publication that the end of another one started: active, failed or published by now."""
    document = server.get(f"/datasets/{dataset}/status")
    found = [job["id"] for job in (document["active"], document["failure"]) if job and job["pipeline"] == "publication"]
    if document["version"]:
        found.append(server.get(f"/datasets/{dataset}/versions/{document['version']['number']}")["publication"])
    newer = [job for job in found if job > ended]  # ids grow with time
    if not newer:
        raise Refused(f"What followed publication {ended} isn't there any more: look with `leaseway status {dataset}`.")
    return str(min(newer))


@click.command()
@dataset_argument
@machine
def status(dataset: str, machine: bool) -> None:
    """Say why DATASET isn't newer: its version, schedule, active job, last failure, on one screen.

    Examples:
      leaseway status flights
      leaseway status flights --json | jq .version
    """
    document = remote().get(f"/datasets/{dataset}/status")
    if machine:
        show.as_json(document)
        return
    show.dataset_status(document)


@click.group()
def definition() -> None:
    """What a dataset is: its metadata, its source, its columns.

    Examples:
      leaseway definition get flights > flights.json
      leaseway definition put flights flights.json
    """


@definition.command("put")
@dataset_argument
@click.argument("file", type=click.File("r", encoding="utf-8"), default="-")
def definition_put(dataset: str, file: IO[str]) -> None:
    """Store the definition in FILE (or standard input) as the newest revision of DATASET.

    The same content again changes nothing. What isn't valid is refused, each field named.

    Examples:
      leaseway definition put flights flights.json
      generate-definition | leaseway definition put flights
    """
    try:
        body = json.load(file)
    except ValueError as error:
        raise click.BadParameter(f"{file.name} is not JSON: {error}.", param_hint="FILE") from error
    stored = remote().ask("PUT", f"/datasets/{dataset}/definition", json=body).json()
    click.echo(f"Revision {stored['revision']} of {dataset} is in force.")


@definition.command("get")
@dataset_argument
@click.argument("file", type=click.Path(dir_okay=False, writable=True, path_type=Path), required=False)
def definition_get(dataset: str, file: Path | None) -> None:
    """Print the definition of DATASET, or write it to FILE: ready to be edited and put.

    Examples:
      leaseway definition get flights
      leaseway definition get flights flights.json
    """
    body = remote().get(f"/datasets/{dataset}/definition")
    text = json.dumps(body, indent=2, ensure_ascii=False)
    if file is None:
        click.echo(text)
    else:
        file.write_text(text + "\n", encoding="utf-8")
        click.echo(f"Written to {file}.")


@click.group()
def schedule() -> None:
    """Publish a dataset every day, week or month.

    A window that was missed is made up for once, not once per window.

    Examples:
      leaseway schedule set flights --every day --at 02:00 --zone Europe/Berlin
      leaseway schedule set flights --every month --on 31 --at 06:30
      leaseway schedule list
      leaseway schedule delete flights
    """


@schedule.command("set")
@dataset_argument
@click.option("--every", type=click.Choice(["day", "week", "month"]), required=True, help="How often.")
@click.option("--at", required=True, metavar="HH:MM", help="The wall clock's time in the zone.")
@click.option("--on", metavar="DAY", help="With week: monday … sunday. With month: 1 … 31; a short month's last day.")
@click.option("--zone", default="UTC", show_default=True, help="Time zone, such as Europe/Berlin.")
def schedule_set(dataset: str, every: str, at: str, on: str | None, zone: str) -> None:
    """Publish DATASET from now on at these times.

    A time that doesn't exist (the clock goes forward) runs at the first instant after the gap; one that exists twice
    runs at the first.

    Examples:
      leaseway schedule set flights --every day --at 02:00 --zone Europe/Berlin
      leaseway schedule set flights --every week --on sunday --at 03:15
      leaseway schedule set flights --every month --on 31 --at 23:00
    """
    stored = remote().ask("PUT", f"/datasets/{dataset}/schedule", json=cadence_of(every, at, on, zone)).json()
    click.echo(f"{dataset} is published next at {show.moment(stored.get('next_due_at'))}.")


def cadence_of(every: str, at: str, on: str | None, zone: str) -> dict[str, object]:
    """The cadence that options say, as the API takes it; raises click's errors."""
    if not re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", at):
        raise click.BadParameter(f"{at!r} is no time; write it like 02:00.", param_hint="--at")
    if every == "day" and on is not None:
        raise click.UsageError("--on goes with --every week or month.")
    if every != "day" and on is None:
        raise click.UsageError(f"--every {every} needs --on, such as --on {'sunday' if every == 'week' else '31'}.")
    cadence: dict[str, object] = {"every": every, "at": at, "zone": zone}
    if on is not None:
        cadence["on"] = int(on) if on.isdecimal() else on.lower()
    return cadence


@schedule.command("list")
@machine
def schedule_list(machine: bool) -> None:
    """List the schedules, with the next and the last run of each."""
    document = remote().get("/schedules")
    if machine:
        show.as_json(document)
        return
    show.table(
        ("dataset", "when", "next", "last"),
        [
            (
                item["dataset"] or f"({item['pipeline']})",
                show.cadence(item),
                show.moment(item.get("next_due_at")),
                show.moment(item.get("last_due_at")),
            )
            for item in document["schedules"]
        ],
        "Nothing is scheduled. `leaseway schedule set DATASET --every day --at 02:00` does.",
    )


@schedule.command("delete")
@dataset_argument
def schedule_delete(dataset: str) -> None:
    """Stop publishing DATASET on a schedule; an active publication goes on."""
    remote().ask("DELETE", f"/datasets/{dataset}/schedule")
    click.echo(f"{dataset} has no schedule any more.")


COMMANDS = (publish, withdraw, status, definition, schedule)
