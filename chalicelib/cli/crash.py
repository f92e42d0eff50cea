"""The demo of a crash: SIGKILL for the process that owns the job, twice, and what happens then."""

import json
import os
import signal
from collections.abc import Callable
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
    """Tells what happens to jobs, from their history, as it happens."""

    server: Remote
    names: dict[str, str] = field(default_factory=dict)
    told: dict[str, int] = field(default_factory=dict)

    def tell(self) -> None:
        """Print the events that weren't told yet."""
        for job, name in self.names.items():
            with suppress(Refused):  # it will be told later
                history = self.server.get(f"/internal/jobs/{job}")["history"]
                for event in history[self.told.get(job, 0) :]:
                    claim = f", claim {event['claim_id']}" if event.get("claim_id") else ""
                    more = f", {show.details(event['details'])}" if event.get("details") else ""
                    at = event["at"][11:19]
                    click.echo(
                        f"  {at}  {name:<12} {event['event']:<12} {event['state']}{claim}, attempt {event['attempts']}{more}"
                    )
                self.told[job] = len(history)


def run() -> None:
    """Publish, kill the owner of the export, kill the owner of the publication, and end published all the same."""
    show.heading("The flights once more, with a worker that is killed in the middle, twice")
    server = demo.prepare()
    stack = local.stack()
    database = Database(stack.environment()["DATABASE_URL"])
    asked = demo.ask(server)
    publication = asked["id"]
    story = Story(server, {publication: "publication"})

    click.echo("1. The worker dies while it exports, and the publication waits in GET_DATA.")
    export = wait_for(lambda: database.one(SQL.find_exporting_job, publication=publication), "The export didn't begin.")
    first = kill(export)
    story.names[str(export["id"])] = "export"

    def again() -> Row | None:
        story.tell()
        found = database.one(SQL.find_exporting_job, publication=publication)
        return found if found and found["claim_id"] != first else None

    wait_for(again, "The export wasn't recovered.", pause=1)

    click.echo("\n2. The worker dies in PERSIST_DATA, just before it changes the catalogue.")
    # The dataset's row is held here, so that the publication is caught where it wants to write; no hook in the product.
    with database.transaction() as tx:
        tx.run(SQL.lock_dataset, dataset=demo.DATASET)
        kill(wait_for(lambda: waiting(tx, publication, story), "The publication didn't come to PERSIST_DATA."))

    for status in server.follow(asked["links"]["self"], patience=600):
        story.tell()
        last = status
    if last["status"] != "succeeded":
        raise Refused(show.failure(last))
    demo.report(server, last["version"])
    prove(database, stack, UUID(publication), first)


def waiting(tx: Sql, publication: str, story: Story) -> Row | None:
    """Look whether the publication stands before the lock."""
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
        f"  SIGKILL for process {pid} ({function}), which had claim {job['claim_id']} of job {job['id']};"
        f" its lease runs out at {job['locked_until']:%H:%M:%S}."
    )
    return int(job["claim_id"])


def owner(job: Row) -> tuple[int, str] | None:
    """Find the process that logged that it has this claim: each one has a status file and a live log in the stack's folder."""
    for file in processes().glob("*.json"):
        with suppress(FileNotFoundError, ValueError):
            status = json.loads(file.read_text())
            for line in Path(status["log"]).read_text(errors="replace").splitlines():
                said = _logged(line)
                if said.get("claim") == job["claim_id"] and said.get("pid") == status["pid"]:
                    return int(status["pid"]), str(status["function"])
    return None


def _logged(line: str) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(line)
        return found if isinstance(found, dict) else {}
    return {}
