"""Refreshes: the manifest, which is registered beside the database, and everything else over HTTP."""

import json
import os
import secrets
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import click

from . import show
from .local import administer, enter, here, remote, stack
from .publishing import cadence_of, machine
from .remote import Refused, Remote
from .yaml_files import Faulty, read

if TYPE_CHECKING:
    from chalicelib.db import Database
    from chalicelib.pipelines.refresh.manifest import Manifest
    from localstack.stack import Stack


@click.group()
def manifest() -> None:
    """The manifest of refreshes: which tables are made from which sources, and what must hold. Immutable, numbered.

    Examples:
      leaseway manifest check refresh.yaml
      leaseway manifest register refresh.yaml
      leaseway manifest list
      leaseway manifest show 3
    """


@manifest.command("register")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def manifest_register(file: Path) -> None:
    """Register FILE as the next version of the manifest; a refresh that runs keeps its own.

    Each source's revision is pinned with it. All faults are told at once, with line and column. The same content again
    is the same version.

    Example:
      leaseway manifest register refresh.yaml
    """
    from chalicelib.pipelines.refresh import registry

    _, database = administer()
    made = _read(file, database)
    with database.transaction() as tx:
        version, created = registry.register(tx, made)
    click.echo(
        f"The manifest is at version {version}{'' if created else ', as it was'}:"
        f" {show.many(len(made.contracts), 'contract')}."
    )


@manifest.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def manifest_check(file: Path) -> None:
    """Look at everything that FILE names, from here: sources, targets, columns, rights. Nothing is changed anywhere.

    The connections' secrets must be set here as they are for the functions. Exit code 1 on a finding.

    Example:
      leaseway manifest check refresh.yaml
    """
    from chalicelib.pipelines.refresh import registry
    from chalicelib.pipelines.refresh.looking import look

    _, database = administer()
    pinned = registry.pin_sources(database, _read(file, database))
    findings = [(contract.name, finding) for contract in pinned.in_order() for finding in look(database, contract)]
    for name, finding in findings:
        click.echo(f"! {name}: {finding}")
    if findings:
        raise click.exceptions.Exit(1)
    click.echo("Nothing to mend.")


@manifest.command("list")
@machine
def manifest_list(machine: bool) -> None:
    """List the versions of the manifest, newest first."""
    from chalicelib.pipelines.refresh import registry

    _, database = administer()
    found = registry.manifests(database)
    if machine:
        show.as_json(found)
        return
    show.table(
        ("version", "contracts", "registered", "sha256"),
        [(m["version"], m["contracts"], show.moment(m["registered_at"].isoformat()), m["sha256"]) for m in found],
        "There is no manifest. `leaseway manifest register FILE` registers one.",
    )


@manifest.command("show")
@click.argument("version", type=click.IntRange(1), required=False)
def manifest_show(version: int | None) -> None:
    """Print VERSION of the manifest, or the newest one, in its one canonical spelling."""
    from chalicelib.pipelines.refresh import registry

    _, database = administer()
    found = registry.manifest(database, version)
    if found is None:
        raise Refused("There is no such version: see `leaseway manifest list`.")
    show.as_json(found["body"])


def _read(file: Path, database: "Database") -> "Manifest":
    """The manifest in a file; Faulty with every fault at its place, names that aren't known too."""
    from chalicelib.datasets import Invalid
    from chalicelib.pipelines.refresh import registry

    found = read(file)
    try:
        return registry.read(database, found.content)
    except Invalid as invalid:
        raise Faulty([found.fault(*fault) for fault in invalid.faults]) from None


@click.group(invoke_without_command=True)
@click.option("--wait", is_flag=True, help="As of `leaseway refresh start`.")
@click.pass_context
def refresh(ctx: click.Context, wait: bool) -> None:
    """Refresh every target of the manifest; without a command: start.

    Examples:
      leaseway refresh enable --rollback 8c1f…
      leaseway refresh start --wait
      leaseway refresh status
      leaseway refresh history
      leaseway refresh schedule --every day --at 02:00 --zone Europe/Berlin
      leaseway refresh disable
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(refresh_start, wait=wait, machine=False)
    elif wait:
        raise click.UsageError("--wait goes with `leaseway refresh start --wait`.")


@refresh.command("start")
@click.option("--wait", is_flag=True, help="Show progress until it has ended; a failure exits with 1.")
@machine
def refresh_start(wait: bool, machine: bool) -> None:
    """Refresh every target as the newest manifest says; where a refresh is active, it is that one.

    Examples:
      leaseway refresh
      leaseway refresh start --wait
    """
    server = remote()
    answer = server.ask("POST", "/refreshes", json={}, idempotency_key=str(uuid4()))
    status = answer.json()
    if not wait:
        if machine:
            show.as_json(status)
            return
        click.echo(f"Accepted as job {status['id']}: {show.doing(status)}")
        click.echo("Look with `leaseway refresh status`.")
        return
    try:
        show.watch(server.follow(answer.headers["Location"]), quiet=machine)
    finally:
        found = server.get(answer.headers["Location"])
        show.as_json(found) if machine else _show_contracts(found)


@refresh.command("status")
@click.argument("job", type=click.UUID, required=False)
@machine
def refresh_status(job: UUID | None, machine: bool) -> None:
    """Say how fresh each target is, and what became of the last refresh, or of JOB.

    Examples:
      leaseway refresh status
      leaseway refresh status 019ad0c2-…
    """
    server = remote()
    if job is not None:
        found = server.get(f"/refreshes/{job}")
        show.as_json(found) if machine else _show_contracts(found)
        return
    document = server.get("/refreshes", limit=1)
    if machine:
        show.as_json(document)
        return
    version = document["manifest"] and document["manifest"]["version"]
    enabled = f"since {show.moment(document['enabled_at'])}" if document["enabled"] else "no: `leaseway refresh enable`"
    schedule = document.get("schedule") or {}
    last = document["refreshes"][0] if document["refreshes"] else None
    show.facts(
        [
            ("enabled", enabled),
            ("back to", document["rollback"]),
            ("manifest", f"version {version}" if version else "none: `leaseway manifest register`"),
            ("schedule", show.cadence(schedule) if schedule else None),
            ("next refresh", show.moment(schedule.get("next_due_at"))),
            ("not run", (schedule.get("last_refusal") or {}).get("sentence")),
            ("last refresh", last and f"{last['id']}, {show.doing(last)}"),
            ("failure", show.failure(last) if last and last["failure"] else None),
        ]
    )
    click.echo()
    show.table(
        ("target", "records", "refreshed", "newest record", "last run"),
        [
            (
                target["target"],
                show.amount(target["records"]),
                show.moment(target["refreshed_at"]),
                show.moment(target["watermark"]),
                target["last"] and _outcome(target["last"]),
            )
            for target in document["targets"]
        ],
        "There are no targets.",
    )


@refresh.command("history")
@click.option("--limit", type=click.IntRange(1, 200), default=20, show_default=True)
@machine
def refresh_history(limit: int, machine: bool) -> None:
    """List the refreshes, newest first."""
    found = remote().get("/refreshes", limit=limit)["refreshes"]
    if machine:
        show.as_json(found)
        return
    show.table(
        ("refresh", "manifest", "status", "accepted", "finished", "why"),
        [
            (
                each["id"],
                each["manifest"],
                each["status"],
                show.moment(each["accepted_at"]),
                show.moment(each["finished_at"]),
                show.failure(each) if each["failure"] else None,
            )
            for each in found
        ],
        "There are no refreshes.",
    )


@refresh.command("schedule")
@click.option("--every", type=click.Choice(["day", "week", "month"]), help="How often.")
@click.option("--at", metavar="HH:MM", help="The wall clock's time in the zone.")
@click.option("--on", metavar="DAY", help="With week: monday … sunday. With month: 1 … 31; a short month's last day.")
@click.option("--zone", default="UTC", show_default=True, help="Time zone, such as Europe/Berlin.")
@click.option("--off", is_flag=True, help="Refresh on no schedule any more; an active refresh goes on.")
def refresh_schedule(every: str | None, at: str | None, on: str | None, zone: str, off: bool) -> None:
    """Refresh every target every day, week or month, each time as the newest manifest says then.

    While refreshes are disabled a time passes without one; `leaseway refresh status` says so.

    Examples:
      leaseway refresh schedule --every day --at 02:00 --zone Europe/Berlin
      leaseway refresh schedule --every month --on 31 --at 23:00
      leaseway refresh schedule --off
    """
    if off == bool(every or at or on) or bool(every) != bool(at):
        raise click.UsageError("Say --every and --at, or --off alone.")
    if every and at:
        stored = remote().ask("PUT", "/refreshes/schedule", json=cadence_of(every, at, on, zone)).json()
        click.echo(f"The next refresh is at {show.moment(stored['next_due_at'])}.")
    else:
        remote().ask("DELETE", "/refreshes/schedule")
        click.echo("Refreshes have no schedule any more.")


@refresh.command("enable")
@click.option("--rollback", metavar="SHA-256", help="The package to go back to.")
def refresh_enable(rollback: str | None) -> None:
    """Enable refreshes, with the package to go back to: its zip must be kept in the deployment bucket.

    Without --rollback it says which packages the local stack keeps. Who enabled refreshes, and when, stands in the
    record of operators' acts.

    Example:
      leaseway refresh enable --rollback 8c1f…
    """
    if rollback is None:
        raise click.UsageError(f"Say --rollback SHA-256. {_kept()}")
    try:
        remote().ask("PUT", "/internal/refresh", json={"rollback": rollback})
    except Refused as refused:
        if refused.code != "unknown_package":
            raise
        raise Refused(f"{refused.format_message()} {_kept()}", refused.code, refused.body) from None
    click.echo(f"Refreshes are enabled; the package to go back to is {rollback}.")


@refresh.command("disable")
def refresh_disable() -> None:
    """Disable refreshes: none is accepted, and the one that runs ends before its next contract."""
    remote().ask("DELETE", "/internal/refresh")
    click.echo("Refreshes are disabled.")


def _kept() -> str:
    """Where the digest of a package comes from, as a sentence."""
    if os.environ.get("LEASEWAY_URL"):
        return "The deployment bucket has each package as SHA-256.zip: `aws s3 ls s3://$LEASEWAY_DEPLOY_BUCKET`."
    named = remote().get("/refreshes", limit=1)["rollback"]
    found = {_deployed(stack()): "deployed now"}
    if named:
        found.setdefault(named, "named before")
    return f"The local stack keeps {', '.join(f'{digest} ({what})' for digest, what in found.items())}."


def _outcome(run: dict[str, Any]) -> str:
    code = run.get("failure") and run["failure"]["code"]
    return f"{run['outcome']}{f': {code}' if code else ''}"


def _show_contracts(document: dict[str, Any]) -> None:
    """What became of each contract of a refresh, and the checks that weren't met."""
    show.table(
        ("contract", "target", "outcome", "read", "inserted", "updated", "deleted", "rejected", "seconds"),
        [
            (
                contract["contract"],
                contract["target"],
                _outcome(contract),
                *(show.amount(number) for number in (contract.get("rows") or dict.fromkeys("riudx")).values()),
                contract.get("seconds"),
            )
            for contract in document["contracts"]
        ],
        "It has no contracts.",
    )
    for contract in document["contracts"]:
        if (failed := contract.get("failure")) and failed["code"] != "dependency_failed":
            click.echo(f"! {contract['contract']}: {show.failure(contract)}")
        for check in contract.get("checks") or ():
            if not check["passed"]:
                said = show.details({name: value for name, value in check.items() if name not in ("check", "passed")})
                click.echo(f"! {contract['contract']}: {check['check']} ({said})")


# The demo

CONNECTION = "demo-mart"
SOURCE = "demo-airlines"
DATABASE = "demo_mart"
LOADER = "demo_mart_loader"
SECRET = "LEASEWAY_SECRET_DEMO_MART"  # noqa: S105 - the name of the variable that holds the address
AIRLINES = "select carrier, count(*) as flights from nyc.flights group by carrier"

TABLES = """
create schema if not exists mart;
create table if not exists mart.flights (
    time_hour timestamptz, carrier text, flight int, origin text not null, dest text not null, delay smallint,
    primary key (time_hour, carrier, flight)
);
create table if not exists mart.airlines (carrier text primary key, flights int not null);
grant usage on schema mart to demo_mart_loader;
grant select, insert, update, delete on all tables in schema mart to demo_mart_loader;
create schema if not exists leaseway authorization demo_mart_loader;
"""


def demonstrate(yes: bool) -> None:
    """Make a data mart, register a manifest, enable refreshes, and refresh it twice.

    A manifest of somebody else's is replaced only with ``yes``.
    """
    from psycopg.conninfo import conninfo_to_dict

    from chalicelib.datasets.registry import add_connection, register_source
    from chalicelib.pipelines.refresh import registry

    from . import demo

    show.heading("A data mart that is refreshed from the flights of 2013")
    stack = enter()
    with demo.step("a data mart is there, with a login that may write it"):
        stack.start()
        environment = stack.environment()
        password = conninfo_to_dict(environment.get(SECRET, "")).get("password") or secrets.token_urlsafe()
        stack.keep(SECRET, _make_mart(environment["DATABASE_URL"], str(password)))
    demo.prepare()
    server = here("operator")
    _, database = administer()
    if not yes:
        _spare_others(database)
    with demo.step("its manifest is registered, refreshes are enabled"):
        add_connection(database, CONNECTION, SECRET)
        register_source(database, SOURCE, demo.CONNECTION, relation=None, query=AIRLINES)
        with resources.as_file(resources.files(__package__) / "mart.yaml") as file:
            made = _read(file, database)
        registry.register(database, made)
        _enable(database, server, stack)
    for _ in range(2):
        answer = server.ask("POST", "/refreshes", json={})
        click.echo(f"\n  POST {server.url}/refreshes\n  {answer.status_code} {answer.reason_phrase}")
        click.echo(f"  Location: {answer.headers['Location']}\n")
        show.watch(server.follow(answer.headers["Location"]))
        _show_contracts(server.get(answer.headers["Location"]))
    click.echo("\nThe second one has changed nothing: a refresh writes what differs.")
    click.echo("Look with `leaseway refresh status`; what it does is in `leaseway manifest show`.")


def _enable(database: "Database", server: Remote, stack: "Stack") -> None:
    """Enable refreshes; where they are, the package to go back to is somebody's choice."""
    from chalicelib.pipelines.refresh import registry

    if not registry.switch(database)["enabled"]:
        server.ask("PUT", "/internal/refresh", json={"rollback": _deployed(stack)})


def _spare_others(database: "Database") -> None:
    """Refuse to go on where the newest manifest writes elsewhere than into the demo's mart."""
    from chalicelib.pipelines.refresh import registry

    found = registry.manifest(database)
    if found and {contract["target"]["connection"] for contract in found["body"]["contracts"]} != {CONNECTION}:
        raise Refused(
            f"Version {found['version']} of the manifest isn't the demo's, which would take its place: refreshes would"
            " make the demo's tables alone. `leaseway demo refresh --yes` does it; to go back, register yours again."
        )


def _make_mart(admin_dsn: str, password: str) -> str:
    """Make the mart's database on the server of ``admin_dsn``, unless it is there; the DSN of its loader."""
    import psycopg
    from psycopg.conninfo import make_conninfo

    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        # A row of no columns is () here, and not None.
        if admin.execute("select from pg_database where datname = %s", [DATABASE]).fetchone() is None:
            admin.execute(f"create database {DATABASE}")
        if admin.execute("select from pg_roles where rolname = %s", [LOADER]).fetchone() is None:
            admin.execute(f"create role {LOADER} login")
        admin.pgconn.change_password(LOADER.encode(), password.encode())  # hashed here: no log of the server's has it
        admin.execute(f"revoke connect on database {DATABASE} from public")
        admin.execute(f"grant connect on database {DATABASE} to {LOADER}")
    with psycopg.connect(make_conninfo(admin_dsn, dbname=DATABASE)) as mart:
        mart.execute(TABLES)
    return make_conninfo(admin_dsn, dbname=DATABASE, user=LOADER, password=password)


def _deployed(stack: "Stack") -> str:
    """The digest of the package that is deployed now."""
    from localstack.deploy import CODE_BUCKET, TEMPLATE

    found = stack.client("s3").get_object(Bucket=CODE_BUCKET, Key=TEMPLATE)["Body"].read()
    code = json.loads(found)["Resources"]["Worker"]["Properties"]["CodeUri"]
    return str(code).rpartition("/")[2].removesuffix(".zip")


COMMANDS = (manifest, refresh)
