"""Commands for the stack on this machine: up, down, deploy, demo."""

import click

from . import local


@click.command()
def up() -> None:
    """Start the local stack with the app deployed, or find it running: nothing that runs is disturbed.

    It is PostgreSQL, LocalStack, the triple store and the front port.

    All its data lies in .leaseway/stack of this checkout; the ports are chosen once and kept.
    """
    stack = local.enter()
    stack.up()
    _, database = local.administer()
    local.keep_tokens(database)
    with stack.at("recovering and catching up"):
        local.catch_up(stack)
    click.echo(f"Up at {stack.url}")


@click.command()
def down() -> None:
    """Stop the local stack; everything it keeps is there again after `leaseway up`."""
    stack = local.stack()
    stack.say("stopping what runs")
    stack.down()
    click.echo("Down. `leaseway up` brings everything back.")


@click.command()
def dsn() -> None:
    """Print the address of the local stack's PostgreSQL, its administrator's password with it.

    Examples:
      psql "$(leaseway dsn)"
    """
    click.echo(local.stack().environment()["DATABASE_URL"])


@click.command()
def deploy() -> None:
    """Package the app and deploy it to the local stack as CloudFormation, as it would be on AWS."""
    from localstack.deploy import deploy as make

    stack = local.stack()
    stack.say("packaging the app, and deploying it where it differs")
    make(stack)
    click.echo(f"Deployed at {stack.url}")


@click.group(invoke_without_command=True)
@click.option("--crash", is_flag=True, help="Kill the worker in the middle, twice, and watch the recovery.")
@click.pass_context
def demo(context: click.Context, crash: bool) -> None:
    """Publish a real dataset from nothing: the flights that left New York City in 2013.

    It starts the stack, deploys the app, loads 336,776 records, writes their definition and publishes them. A second
    run publishes version 2.

    Examples:
      leaseway demo
      leaseway demo --crash
      leaseway demo load
      leaseway demo refresh
    """
    if context.invoked_subcommand:
        return
    from . import crash as crashing
    from . import demo as showing

    crashing.run() if crash else showing.run()


@demo.command("load")
def demo_load() -> None:
    """Push rows into a dataset's store, once, however often they are sent; publish them from there."""
    from .loading import demonstrate

    demonstrate()


@demo.command("refresh")
@click.option("--yes", is_flag=True, help="Register its manifest in the place of one that isn't the demo's.")
def demo_refresh(yes: bool) -> None:
    """Refresh two tables of a data mart as a manifest says: checked, each in one piece, audited.

    The mart is a database of its own, demo_mart, by the connection demo-mart.
    """
    from .refreshing import demonstrate

    demonstrate(yes)


COMMANDS = (demo, up, down, deploy, dsn)
