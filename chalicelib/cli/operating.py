"""Commands of those who are woken when something is stuck: jobs, failures, pauses. All over HTTP."""

from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID, uuid4

import click

from . import show
from .local import remote
from .publishing import machine
from .remote import Refused, Remote

job_argument = click.argument("job", type=click.UUID)


def pages(
    server: Remote,
    path: str,
    items: str,
    limit: int,
    wanted: Callable[[dict[str, Any]], bool] = lambda item: True,
    **query: object,
) -> list[dict[str, Any]]:
    """Read up to `limit` items that are `wanted` of a list that comes in pages, newest first."""
    found: list[dict[str, Any]] = []
    after = None
    while len(found) < limit:
        document = server.get(path, limit=min(limit - len(found), 100), after=after, **query)
        found += filter(wanted, document[items])
        after = document.get("next")
        if not after:
            break
    return found[:limit]


@click.group()
def jobs() -> None:
    """See and cancel jobs.

    Examples:
      leaseway jobs list --status running
      leaseway jobs show 019ad0c2-…
      leaseway jobs cancel 019ad0c2-…
    """


@jobs.command("list")
@click.option("--pipeline", help="Only jobs of this pipeline, such as publication or export.")
@click.option("--status", type=click.Choice(["queued", "running", "succeeded"]), help="Only jobs that are so.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@machine
def jobs_list(pipeline: str | None, status: str | None, limit: int, machine: bool) -> None:
    """List jobs, newest first. What failed is in `leaseway failures list`.

    Examples:
      leaseway jobs list
      leaseway jobs list --pipeline export --status running
      leaseway jobs list --json | jq -r '.[].id'
    """
    found = pages(remote(), "/internal/jobs", "jobs", limit, pipeline=pipeline, status=status)
    if machine:
        show.as_json(found)
        return
    show.table(
        ("job", "pipeline", "about", "status", "doing", "accepted"),
        [
            (j["id"], j["pipeline"], show.subject(j), j["status"], show.doing(j), show.moment(j["accepted_at"]))
            for j in found
        ],
        "There are no such jobs.",
    )


@jobs.command("show")
@job_argument
@machine
def jobs_show(job: UUID, machine: bool) -> None:
    """Show one job: its state, its lease, what it waits for, and its history."""
    document = remote().get(f"/internal/jobs/{job}")
    if machine:
        show.as_json(document)
        return
    show.facts(
        [
            ("job", document["id"]),
            ("pipeline", document["pipeline"]),
            ("about", show.subject(document)),
            ("status", document["status"]),
            ("doing", show.doing(document)),
            ("attempt", document.get("attempts")),
            ("version", document.get("version")),
            ("accepted", show.moment(document.get("accepted_at"))),
            ("started", show.moment(document.get("started_at"))),
            ("finished", show.moment(document.get("finished_at"))),
            ("not before", show.moment(document.get("run_at"))),
            ("act by", show.moment(document.get("locked_until"))),
            ("deadline", show.moment(document.get("deadline_at"))),
            ("failure", show.failure(document) if document.get("failure") else None),
        ]
    )
    show.bad_rows_of(document)
    history = document.get("history") or []
    if history:
        click.echo()
        show.table(
            ("at", "event", "state", "claim", "details"),
            [
                (
                    e["at"][:19].replace("T", " "),
                    e["event"],
                    e.get("state"),
                    e.get("claim_id"),
                    show.details(e.get("details")),
                )
                for e in history
            ],
            "",
        )


@jobs.command("cancel")
@job_argument
def jobs_cancel(job: UUID) -> None:
    """Cancel a job: at once if nobody works on it, else at its worker's next heartbeat."""
    document = remote().ask("POST", f"/internal/jobs/{job}/cancel").json()
    if document.get("status") in ("queued", "running"):
        click.echo(f"Job {job} ends at its worker's next heartbeat: `leaseway jobs show {job}`.")
    elif document.get("status") == "succeeded":
        raise Refused(f"Job {job} had already succeeded.")
    else:
        click.echo(f"Job {job} is cancelled.")


@click.group()
def failures() -> None:
    """See what failed for good, and run it again.

    Examples:
      leaseway failures list
      leaseway failures show 019ad0c2-…
      leaseway failures requeue 019ad0c2-…
      leaseway failures requeue --all --code storage_unreachable
      leaseway failures purge 019ad0c2-…
    """


@failures.command("list")
@click.option("--pipeline", help="Only failures of this pipeline.")
@click.option("--code", help="Only failures with this code, such as source_denied.")
@click.option("--all", "everything", is_flag=True, help="Exports, too, beside the publications that they are parts of.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True)
@machine
def failures_list(pipeline: str | None, code: str | None, everything: bool, limit: int, machine: bool) -> None:
    """List failures, newest first, with the sentence that says how to mend each; on a terminal cut to a line.

    What was run again, or done by a later job, is marked: there is nothing left to do about it.

    Examples:
      leaseway failures list
      leaseway failures list --code source_denied
      leaseway failures list --all --json
    """
    everything = everything or pipeline is not None
    parts = 0

    def wanted(failed: dict[str, Any]) -> bool:
        nonlocal parts
        is_part = failed["pipeline"] == "export"
        parts += is_part
        return everything or not is_part

    found = pages(remote(), "/internal/failures", "failures", limit, wanted, pipeline=pipeline, code=code)
    if machine:
        show.as_json(found)
        return
    show.table(
        ("job", "pipeline", "about", "failed", "since then", "why"),
        [
            (
                f["id"],
                f["pipeline"],
                show.subject(f),
                show.moment(f.get("failed_at") or f.get("finished_at")),
                _since(f),
                show.failure_briefly(f),
            )
            for f in found
        ],
        "Nothing has failed but exports: `--all` lists them." if parts else "Nothing has failed.",
        cut=True,
    )


@failures.command("show")
@job_argument
@machine
def failures_show(job: UUID, machine: bool) -> None:
    """Show one failure: why, after how many attempts, in which step, and what mends it."""
    document = remote().get(f"/internal/failures/{job}")
    if machine:
        show.as_json(document)
        return
    show.facts(
        [
            ("job", document["id"]),
            ("pipeline", document["pipeline"]),
            ("about", show.subject(document)),
            ("why", show.failure(document)),
            ("attempts", document.get("attempts")),
            ("accepted", show.moment(document.get("accepted_at"))),
            ("started", show.moment(document.get("started_at"))),
            ("failed", show.moment(document.get("failed_at") or document.get("finished_at"))),
            ("run again as", document.get("requeued_as")),
            ("done since", "by a later job" if document.get("mended") else None),
            *(() if _since(document) else _again(document)),
        ]
    )
    show.bad_rows_of(document)


def _since(failed: dict[str, Any]) -> str | None:
    """What has become of it since then."""
    return "mended" if failed.get("mended") else "run again" if failed.get("requeued_as") else None


def _again(failed: dict[str, Any]) -> list[tuple[str, str]]:
    """What has a failure's work done after all: each way's name, and the command."""
    if failed["pipeline"] == "load":  # its payload is erased
        return [("send it anew", f"leaseway load {show.subject(failed)} FILE")]
    if failed["pipeline"] == "export":
        return [("run it again", f"with its publication: leaseway publish {show.subject(failed)}")]
    requeue = f"leaseway failures requeue {failed['id']}"
    if failed["pipeline"] == "publication":  # the job's revision is its own, whatever was applied since
        return [
            ("publish anew", f"as the newest definition says: leaseway publish {show.subject(failed)}"),
            ("run it again", f"as the definition said then: {requeue}"),
        ]
    return [("run it again", requeue)]


@failures.command("requeue")
@click.argument("job", type=click.UUID, required=False)
@click.option("--all", "everything", is_flag=True, help="Every failure that the options name.")
@click.option("--pipeline", help="With --all: only failures of this pipeline.")
@click.option("--code", help="With --all: only failures with this code.")
def failures_requeue(job: UUID | None, everything: bool, pipeline: str | None, code: str | None) -> None:
    """Run a failure's job again: a new job about the same subject, with a fresh budget.

    It is about the same revision, too: after a change of the definition or the source, `leaseway publish DATASET`.

    A subject that another job works on is refused and left as it is; with --all the others go on, and the exit code
    is 1. --all leaves out what was run again already, publications that a later one or a withdrawal followed, and
    loads: send those anew.

    Examples:
      leaseway failures requeue 019ad0c2-…
      leaseway failures requeue --all --code triple_store_unreachable
    """
    if (job is None) != everything:
        raise click.UsageError("Name one job, or --all.")
    server = remote()
    if job is not None:
        click.echo(_requeue(server, str(job)))
        return
    refused = 0
    found = pages(server, "/internal/failures", "failures", 10_000, pipeline=pipeline, code=code)
    left = [failed for failed in _newest(found) if not failed.get("requeued_as") and _stands(server, failed)]
    if not left:
        click.echo("There is nothing to run again.")
    for failed in left:
        try:
            click.echo(_requeue(server, failed["id"]))
        except Refused as error:
            refused += 1
            click.echo(f"{failed['id']}: {error.format_message()}", err=True)
    if refused:
        raise Refused(f"{refused} of them {'stays as it is' if refused == 1 else 'stay as they are'}.")


def _newest(found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newest failure about each thing, of a list with the newest first: running the older ones again adds nothing.

    An export is a part of its publication, which makes it anew; a load's payload is erased.
    """
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for failed in found:
        if failed["pipeline"] not in ("export", "load"):
            newest.setdefault((failed["pipeline"], show.subject(failed)), failed)
    return list(newest.values())


def _stands(server: Remote, failed: dict[str, Any]) -> bool:
    """Whether a failed publication is still what its dataset's status complains about: no later one has mended it."""
    dataset = (failed.get("subject") or {}).get("dataset")
    if failed["pipeline"] != "publication" or not dataset:
        return True
    try:
        failure = server.get(f"/datasets/{dataset}/status").get("failure")
    except Refused:  # the dataset is gone
        return False
    return bool(failure and failure["id"] == failed["id"])


def _requeue(server: Remote, job: str) -> str:
    accepted = server.ask("POST", f"/internal/failures/{job}/requeue", idempotency_key=str(uuid4())).json()
    return f"{job} runs again as job {accepted['id']}."


@failures.command("purge")
@job_argument
@click.confirmation_option(prompt="Forget this failure for good?", help="Don't ask.")
def failures_purge(job: UUID) -> None:
    """Forget a failure; it can't be run again afterwards."""
    remote().ask("DELETE", f"/internal/failures/{job}")
    click.echo(f"The failure of {job} is gone.")


@click.command()
@click.argument("pipeline")
@click.option(
    "--hours",
    type=click.FloatRange(0, 168, min_open=True),
    default=24,
    show_default=True,
    help="When it ends by itself.",
)
def pause(pipeline: str, hours: float) -> None:
    """Claim no more jobs of PIPELINE and of its parts, or of all with '*'; what runs now goes on.

    Jobs are still accepted. Nobody fails for the time of the pause; its end adds its length to their deadlines.

    Examples:
      leaseway pause publication --hours 2
      leaseway pause '*'
    """
    document = remote().ask("PUT", "/internal/pause", json={"pipeline": pipeline, "hours": hours}).json()
    click.echo(f"{pipeline} is paused until {show.moment(document.get('until'))}.")


@click.command()
@click.argument("pipeline")
def resume(pipeline: str) -> None:
    """End the pause of PIPELINE and of its parts, or with '*' the one of all.

    Examples:
      leaseway resume publication
      leaseway resume '*'
    """
    remote().ask("DELETE", "/internal/pause", pipeline=pipeline)
    click.echo(f"{pipeline} goes on.")


COMMANDS = (jobs, failures, pause, resume)
