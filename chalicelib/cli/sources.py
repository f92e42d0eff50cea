"""Where datasets come from: connections and sources, administered beside the database."""

import os
from typing import TYPE_CHECKING

import click

from . import show
from .local import administer, keep_secret
from .publishing import machine
from .remote import Refused

if TYPE_CHECKING:
    from chalicelib.db import Database
    from chalicelib.exports.check import Wanted


@click.group()
def connection() -> None:
    """Connections: databases that datasets come from. A name, and the name of the secret that holds the address.

    Examples:
      leaseway connection add warehouse --secret LEASEWAY_SECRET_WAREHOUSE
      leaseway connection check warehouse
      leaseway connection list
    """


@connection.command("add")
@click.argument("name")
@click.option(
    "--secret", required=True, metavar="LEASEWAY_SECRET_…", help="The environment variable that holds the DSN."
)
@click.option("--max-jobs", type=click.IntRange(1, 100), metavar="N", help="Exports that use it at a time; 1 at first.")
@click.option(
    "--statement-timeout",
    type=click.IntRange(0, 86_400),
    metavar="SECONDS",
    help="What one statement may take; 0, as at first: what the login's own setting says.",
)
def connection_add(name: str, secret: str, max_jobs: int | None, statement_timeout: int | None) -> None:
    """Add the connection NAME, or change it. Its DSN stays in the functions' environment, in no row, log or answer.

    Give it a login of its own that may only read, and can't see Leaseway's schema. To another machine it is encrypted
    and verified (sslmode=verify-full). On the local stack the secret is taken from the environment of this command.

    Examples:
      leaseway connection add warehouse --secret LEASEWAY_SECRET_WAREHOUSE
      leaseway connection add warehouse --secret LEASEWAY_SECRET_WAREHOUSE --max-jobs 3 --statement-timeout 600
    """
    if not secret.startswith("LEASEWAY_SECRET_"):
        raise click.BadParameter("it must begin with LEASEWAY_SECRET_.", param_hint="--secret")
    from chalicelib.datasets.registry import add_connection

    kept = keep_secret(secret)
    _, database = administer()
    add_connection(database, name, secret, max_jobs, statement_timeout)
    click.echo(f"Connection {name} reads its address from {secret}.")
    if kept:
        click.echo("The local stack keeps it; `leaseway up` hands it to the functions.")


@connection.command("check")
@click.argument("name")
@machine
def connection_check(name: str, machine: bool) -> None:
    """Look at the connection NAME from here: reach it, read what each of its sources must, make sure it can't write.

    Nothing is written there. The secret must be set here as it is for the functions. Exit code 1 on a finding.

    Example:
      leaseway connection check warehouse
    """
    from chalicelib.datasets import registry
    from chalicelib.exports.check import Report, check

    _, database = administer()
    found = registry.connection(database, name)
    if found is None:
        raise Refused(f"There is no connection {name}: see `leaseway connection list`.")
    dsn = os.environ.get(found["secret"])
    unset = Report(findings=[f"{found['secret']} isn't set here: set it as it is for the functions."])
    report = check(dsn, _wanted(database, name)) if dsn else unset
    if machine:
        show.as_json({"connection": name, **vars(report)})
    else:
        show.facts([("connection", name), *report.facts.items()])
        if report.sources:
            click.echo()
            show.table(("source", "reading it"), list(report.sources.items()), "")
        click.echo()
        for finding in report.findings:
            click.echo(f"! {finding}")
        if not report.findings:
            click.echo("Nothing to mend.")
    if report.findings:
        raise click.exceptions.Exit(1)


def _wanted(database: "Database", connection_name: str) -> "list[Wanted]":
    """What the sources of a connection must give: the columns that datasets publish, or all of a source without one."""
    from chalicelib.datasets import registry
    from chalicelib.exports import Column
    from chalicelib.exports.check import Wanted

    wanted = []
    for source in registry.sources(database):
        if source["connection"] == connection_name:
            definitions = registry.definitions_of(database, source["name"])
            lists: list[list[Column]] = [
                [Column(c.name, c.type, c.source_name or c.name) for c in definition.columns]
                for definition in definitions.values()
            ]
            wanted += [
                Wanted(source["name"], source["relation"], source["query"], columns) for columns in lists or [[]]
            ]
    return wanted


@connection.command("list")
@machine
def connection_list(machine: bool) -> None:
    """List the connections with the names of their secrets, and their limits."""
    from chalicelib.datasets.registry import connections

    _, database = administer()
    found = connections(database)
    if machine:
        show.as_json(found)
        return
    show.table(
        ("connection", "secret", "at a time", "statement time-out"),
        [(c["name"], c["secret"], c["max_jobs"], _seconds(c["statement_timeout"])) for c in found],
        "There are no connections. `leaseway connection add NAME --secret LEASEWAY_SECRET_NAME` adds one.",
    )


def _seconds(number: int | None) -> str:
    return "the login's" if number is None else f"{number} s"


@click.group()
def source() -> None:
    """Sources: the table or query of a connection that a dataset's definition names.

    A source never changes; registering it again makes its next revision, and a publication that runs keeps its own.

    Examples:
      leaseway source register roads --connection warehouse --table public.roads
      leaseway source register busy-roads --connection warehouse --query 'select * from roads where traffic > 100'
      leaseway source list
    """


@source.command("register")
@click.argument("name")
@click.option("--connection", "connection_name", required=True, help="Where it is: see `leaseway connection list`.")
@click.option("--table", help="A table or view, with its schema.")
@click.option("--query", help="Or a query that reads.")
def source_register(name: str, connection_name: str, table: str | None, query: str | None) -> None:
    """Register the source NAME: a table or a query of a connection.

    Examples:
      leaseway source register roads --connection warehouse --table public.roads
      leaseway source register roads --connection warehouse --query 'select id, name from roads'
    """
    if (table is None) == (query is None):
        raise click.UsageError("Give --table or --query.")
    from chalicelib.datasets.registry import register_source

    _, database = administer()
    revision = register_source(database, name, connection_name, relation=table, query=query)
    click.echo(f"Source {name} is at revision {revision}.")


@source.command("list")
@machine
def source_list(machine: bool) -> None:
    """List the sources, each at its newest revision."""
    from chalicelib.datasets.registry import sources

    _, database = administer()
    found = sources(database)
    if machine:
        show.as_json(found)
        return
    show.table(
        ("source", "revision", "connection", "table or query"),
        [(s["name"], s["revision"], s["connection"], s["relation"] or s["query"]) for s in found],
        "There are no sources. `leaseway source register NAME --connection CONNECTION --table TABLE` adds one.",
    )


COMMANDS = (connection, source)
