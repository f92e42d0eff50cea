"""The demo of a crash: SIGKILL for the process that owns the job, twice, and what happens then."""

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep
from typing import Any
from uuid import UUID

import click

from chalicelib.db import Database, Row, Sql, statements

from . import demo, local, show
from .remote import Refused, Remote

SQL = statements("chalicelib.cli")

LOOK = 0.05
"""Seconds between two looks at the database: an export takes seconds, so it is caught in the act."""


@dataclass
class Story:
    """Tells what happens to jobs, from their history, as it happens; what repeats itself is told once."""

    server: Remote
    names: dict[str, str]
    told: set[tuple[str, ...]] = field(default_factory=set)
    looked: float = 0

    def tell(self) -> None:
        """Print the events that weren't told yet; ask at most once a second."""
        if monotonic() - self.looked < 1:
            return
        self.looked = monotonic()
        for job, name in self.names.items():
            for event in self.server.get(f"/internal/jobs/{job}")["history"]:
                happened = (name, event["event"], event["state"], f"attempt {event['attempts']}")
                if happened not in self.told:
                    self.told.add(happened)
                    claim = f"claim {event['claim_id']}" if event.get("claim_id") else ""
                    words = f"{name:<12}{event['event']:<12}{event['state']:<13}{happened[3]}  {claim}"
                    click.echo(f"  {event['at'][11:19]}  {words}")


def run() -> None:
    """Publish, kill the owner of the export, kill the owner of the publication, and end published all the same."""
    show.heading("The flights once more, with a worker that is killed in the middle, twice")
    server = demo.prepare()
    _, database = local.administer()
    location = demo.ask(server).headers["Location"]
    publication = location.rpartition("/")[2]
    story = Story(local.here("operator"), {publication: "publication"})

    click.echo("1. The worker dies while it exports, and the publication waits in GET_DATA.")
    export = wait_for(lambda: exporting(database, publication), "The export didn't begin.")
    lost = kill(export)
    story.names[str(export["id"])] = "export"
    click.echo("  Recovery, which runs every minute, then makes it due again:\n")
    wait_for(lambda: exporting(database, publication, story, lost), "The export wasn't recovered.", pause=1)

    click.echo("\n2. The worker dies in PERSIST_DATA, just before it changes the catalogue.")
    # The dataset's row is held here, so that the publication is caught where it wants to write: no hook in the product.
    with database.transaction() as tx:
        tx.run(SQL.lock_dataset, dataset=demo.DATASET)
        owned = wait_for(lambda: persisting(tx, publication, story), "The publication didn't reach PERSIST_DATA.")
        kill(owned)

    ended = show.watch(told(story, server.follow(location, patience=600)), quiet=True)
    prove(database, UUID(publication), lost)
    demo.report(server, ended["version"])


def told(story: Story, statuses: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Pass a job's statuses on, and tell what happened meanwhile."""
    for status in statuses:
        story.tell()
        yield status


def exporting(sql: Sql, publication: str, story: Story | None = None, lost: int | None = None) -> Row | None:
    """Look whether a worker exports: one that has another claim than the lost one."""
    if story:
        story.tell()
    found = sql.one(SQL.find_exporting_job, publication=publication)
    return found if found and found["claim_id"] != lost else None


def persisting(tx: Sql, publication: str, story: Story) -> Row | None:
    """Look whether the publication's worker stands before the lock that this transaction holds."""
    story.tell()
    return tx.one(SQL.find_waiting_publication, publication=publication)


def wait_for[T](question: Callable[[], T | None], otherwise: str, pause: float = LOOK, patience: float = 300) -> T:
    """Ask until there is an answer."""
    began = monotonic()
    while (answer := question()) is None:
        if monotonic() - began > patience:
            raise Refused(otherwise)
        sleep(pause)
    return answer


def kill(job: Row) -> int:
    """SIGKILL the function process that holds this claim; return the claim."""
    pid, function = wait_for(lambda: owner(job), f"Nobody says that he has claim {job['claim_id']}.", patience=5)
    os.kill(pid, signal.SIGKILL)
    click.echo(
        f"  SIGKILL for process {pid} ({function}), which has claim {job['claim_id']} of job {job['id']}.\n"
        f"  Its lease runs out at {job['locked_until']:%H:%M:%S} UTC; nobody else may touch the job until then."
    )
    return int(job["claim_id"])


def owner(job: Row) -> tuple[int, str] | None:
    """Find the process that logged this claim: each has a status file and a live log in the stack's folder."""
    for file in (local.folder() / "functions").glob("*.json"):
        with suppress(FileNotFoundError):  # it has just ended
            status = json.loads(file.read_text())
            said = [_logged(line) for line in Path(status["log"]).read_text(errors="replace").splitlines()]
            if any(line.get("claim") == job["claim_id"] and line.get("pid") == status["pid"] for line in said):
                return int(status["pid"]), str(status["function"])
    return None


def _logged(line: str) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}


def prove(database: Database, publication: UUID, lost: int) -> None:
    """Have cleanup run, and show from the ledger and from object storage that nothing of the lost claim is left."""
    click.echo("\n3. Cleanup, which runs every 15 minutes, is asked to run now.")
    local.run_function(local.stack(), "Cleanup")
    noted = database.run(SQL.list_ledger, publication=publication)
    show.table(
        ("claim", "what", "status", "removed", "where"),
        [
            (
                row["claim_id"],
                row["kind"],
                row["status"],
                f"{row['removed_at']:%H:%M:%S}" if row["removed_at"] else None,
                row["locator"].get("key") or row["locator"].get("graph"),
            )
            for row in noted
        ],
        "The ledger is empty.",
    )
    job = next(row["job_id"] for row in noted if row["kind"] == "s3_object")
    there = stored(f"exports/{job}/")
    click.echo("\nObject storage has of this export:\n  " + "\n  ".join(there))
    if left := [key for key in there if key.startswith(f"exports/{job}/{lost}/")]:
        raise Refused(f"Of the lost claim {lost} is left: {', '.join(left)}.")
    click.echo(f"\nNo file and no open upload of the lost claim {lost} is left.")


def stored(prefix: str) -> list[str]:
    """List objects and open uploads."""
    from chalicelib.exports.storage import client

    bucket = local.stack().environment()["LEASEWAY_BUCKET"]
    objects = client().list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    uploads = client().list_multipart_uploads(Bucket=bucket, Prefix=prefix).get("Uploads", [])
    return [found["Key"] for found in objects] + [f"{found['Key']} (upload)" for found in uploads]
