"""Commands that work beside the database, not over HTTP: schema and tokens."""

from uuid import UUID

import click

from . import show
from .local import administer
from .publishing import machine
from .remote import Refused

LOGGED = (
    "! PostgreSQL's log gets a line of what is loaded when a connection ends during a COPY: set"
    " log_error_verbosity = terse, in postgresql.conf or the server's parameter group."
)

TIME_OUTS = "! This login may not set the time-outs of the functions' role, leaseway_app. Have somebody run who may:"


@click.command()
@click.option("--deployed", is_flag=True, help="The new code runs everywhere: take away what only the old one needed.")
def migrate(deployed: bool) -> None:
    """Bring the database's schema and the functions' time-outs up to date; a second run changes nothing.

    Before a deployment run it as it is, after it with --deployed: old code and new code both run on what is between.
    The database is DATABASE_URL's, else the local stack's. PUBLIC_URL is stored the first time and another one is
    refused, for it is the base of every address given out. LEASEWAY_STATEMENT_TIMEOUT, _LOCK_TIMEOUT and
    _IDLE_IN_TRANSACTION stand on the functions' role: after a change of them, run it again.

    Examples:
      leaseway migrate
      DATABASE_URL=postgresql://… PUBLIC_URL=https://data.example.org leaseway migrate
    """
    from chalicelib.db import migrate as apply
    from chalicelib.db import set_time_outs, statements

    settings, database = administer()
    applied = apply(settings.dsn, settings.public_url, deployed=deployed)
    click.echo("\n".join(f"applied {name}" for name in applied) or "The schema is up to date.")
    if refused := set_time_outs(settings.dsn, settings):
        click.echo("\n  ".join([TIME_OUTS, *refused]), err=True)
    if not database.one(statements("chalicelib.cli").find_terse_log):
        click.echo(LOGGED, err=True)


@click.command()
@click.option("--remove", is_flag=True, help="Have files and graphs that no row knows removed, after a question.")
@click.option("--yes", is_flag=True, help="Don't ask.")
def restored(remove: bool, yes: bool) -> None:
    """After a restore of the database: lift its numbers above those that the outside has seen, and say what differs.

    A backup is older than the world. Object storage, the triple store and a data service elsewhere know fences and
    versions that were given out since; given out again, they would be refused, or overwrite what they must not. Run
    it while no function does: a pause isn't enough, for the restored database knows nothing of it. It may be run again,
    as often as you like.

    Examples:
      leaseway restored
      leaseway restored --remove
    """
    from . import restored as outside

    settings, database = administer()
    outside.refuse_company(database)
    fence, versions = outside.lift(settings, database)
    click.echo(f"The next fence is {fence}.")
    for dataset, number in versions.items():
        click.echo(f"{dataset}: the next version is {number + 1}.")
    found = outside.look(settings, database)
    for key in found.files:
        click.echo(f"No row knows the file {key}.")
    for dataset, why in found.graphs.items():
        click.echo(f"The catalogue's graph of {dataset} is another one: {why}.")
    for dataset, number in found.lost:
        click.echo(f"Version {number} of {dataset} has lost its files: `leaseway withdraw {dataset} {number}`.")
    if not (found.files or found.graphs):
        click.echo("No file and no graph is left over.")
    elif not remove:
        click.echo("`leaseway restored --remove` has these files removed, and these graphs written anew.")
    elif yes or click.confirm("Remove these files, and write these graphs anew?"):
        outside.remove(settings, database, found)
        click.echo("Cleanup does it when it runs, within a quarter of an hour.")


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


COMMANDS = (migrate, restored, token)
