"""Commands that work beside the database, not over HTTP: schema, tokens, connections, sources."""

from uuid import UUID

import click

from . import show
from .local import administer
from .publishing import machine
from .remote import Refused


@click.command()
def migrate() -> None:
    """Bring the database's schema up to date; a second run changes nothing.

    The database is DATABASE_URL's, else the local stack's. PUBLIC_URL is stored the first time and another one is
    refused, for it is the base of every address given out.

    Examples:
      leaseway migrate
      DATABASE_URL=postgresql://… PUBLIC_URL=https://data.example.org leaseway migrate
    """
    from chalicelib.db import migrate as apply

    settings, _ = administer()
    applied = apply(settings.dsn, settings.public_url)
    click.echo("\n".join(f"applied {name}" for name in applied) or "The schema is up to date.")


@click.command()
def restored() -> None:
    """After a restore of the database: lift its numbers above those that the outside has seen.

    A backup is older than the world. Object storage and the triple store know fences and versions that were given out
    since; given out again, they would be refused, or overwrite what they must not. Run it while no function does: a
    pause isn't enough, for the restored database knows nothing of it.

    Example:
      leaseway restored
    """
    from .restored import lift

    settings, database = administer()
    fence, versions = lift(settings, database)
    click.echo(f"The next fence is {fence}.")
    for dataset, number in versions.items():
        click.echo(f"{dataset}: the next version is {number + 1}.")


@click.group()
def token() -> None:
    """Tokens: who may read, publish and operate. Only their keyed hashes are kept.

    Roles: reader (status, definitions), publisher (also writes what its pattern covers), operator (all).

    Examples:
      leaseway token create roads-office --role publisher --datasets 'roads-*' --expires 90
      leaseway token list
      leaseway token revoke 019ad0c2-…
    """


@token.command("create")
@click.argument("principal")
@click.option("--role", type=click.Choice(["reader", "publisher", "operator"]), default="publisher", show_default=True)
@click.option(
    "--datasets", default="*", show_default=True, metavar="PATTERN", help="The datasets it reaches, * for any part."
)
@click.option("--expires", type=click.IntRange(1, 3650), metavar="DAYS", help="Days it lasts; for ever without.")
def token_create(principal: str, role: str, datasets: str, expires: int | None) -> None:
    """Make a token for PRINCIPAL, the name of a person or an office, and print it, this once.

    A principal may have several tokens, so one can follow another without a gap.

    Examples:
      leaseway token create roads-office
      LEASEWAY_TOKEN=$(leaseway token create night-shift --role operator --expires 7)
    """
    from chalicelib.security import create_token

    _, database = administer()
    secret = create_token(database, principal, role, datasets, expires)
    click.echo(secret)
    click.echo("It isn't kept and can't be shown again.", err=True)


@token.command("revoke")
@click.argument("token_id", metavar="ID", type=click.UUID)
def token_revoke(token_id: UUID) -> None:
    """End a token at once; its ID is in `leaseway token list`."""
    from chalicelib.security import revoke_token

    _, database = administer()
    if not revoke_token(database, token_id):
        raise Refused(f"There is no token {token_id}: see `leaseway token list`.")
    click.echo(f"{token_id} opens nothing any more.")


@token.command("list")
@machine
def token_list(machine: bool) -> None:
    """List the tokens there are and were; their secrets are kept nowhere."""
    from chalicelib.security import tokens

    _, database = administer()
    found = tokens(database)
    if machine:
        show.as_json(found)
        return
    show.table(
        ("id", "principal", "role", "datasets", "stands", "created", "expires"),
        [
            (
                t["id"],
                t["principal"],
                t["role"],
                t["datasets"],
                "yes" if t["stands"] else "revoked" if t["revoked_at"] else "expired",
                f"{t['created_at']:%Y-%m-%d}",
                f"{t['expires_at']:%Y-%m-%d}" if t["expires_at"] else None,
            )
            for t in found
        ],
        "There are no tokens. `leaseway token create NAME` makes one.",
    )


@click.group()
def connection() -> None:
    """Connections: databases that datasets come from. A name, and the name of the secret that holds the address.

    Examples:
      leaseway connection add warehouse --secret LEASEWAY_SECRET_WAREHOUSE
      leaseway connection list
    """


@connection.command("add")
@click.argument("name")
@click.option(
    "--secret", required=True, metavar="LEASEWAY_SECRET_…", help="The environment variable that holds the DSN."
)
def connection_add(name: str, secret: str) -> None:
    """Add the connection NAME. Its DSN stays in the functions' environment and stands in no row, log or answer.

    Give it a login of its own that may only read, and can't see Leaseway's schema.

    Example:
      leaseway connection add warehouse --secret LEASEWAY_SECRET_WAREHOUSE
    """
    if not secret.startswith("LEASEWAY_SECRET_"):
        raise click.BadParameter("it must begin with LEASEWAY_SECRET_.", param_hint="--secret")
    from chalicelib.datasets.registry import add_connection

    _, database = administer()
    add_connection(database, name, secret)
    click.echo(f"Connection {name} reads its address from {secret}.")


@connection.command("list")
@machine
def connection_list(machine: bool) -> None:
    """List the connections with the names of their secrets."""
    from chalicelib.datasets.registry import connections

    _, database = administer()
    found = connections(database)
    if machine:
        show.as_json(found)
        return
    show.table(
        ("connection", "secret"),
        [(c["name"], c["secret"]) for c in found],
        "There are no connections. `leaseway connection add NAME --secret LEASEWAY_SECRET_NAME` adds one.",
    )


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


COMMANDS = (migrate, restored, token, connection, source)
