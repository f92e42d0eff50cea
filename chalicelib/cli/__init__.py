"""The commands of Leaseway."""

import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import click

from . import administering, applying, loading, operating, publishing, refreshing, running, sources


class Commands(click.Group):
    """A group whose commands end with one sentence, never with a stack trace."""

    sections = (
        (
            "The stack on this machine",
            {
                "demo": "Publish a real dataset from nothing.",
                "up": "Start the local stack with the app.",
                "down": "Stop it; what it keeps stays.",
                "deploy": "Package the app and deploy it to the local stack.",
                "dsn": "Print the address of its PostgreSQL.",
            },
        ),
        (
            "Publish",
            {
                "load": "Load rows into a dataset's store.",
                "publish": "Publish a dataset: a new version.",
                "withdraw": "Take a version back, with its files.",
                "status": "Say why a dataset isn't newer.",
                "init": "Begin a definition from a source.",
                "apply": "Apply a folder of definitions with their schedules.",
                "definition": "Put and get what a dataset is.",
                "schedule": "Publish every day, week or month.",
            },
        ),
        (
            "Refresh tables elsewhere",
            {
                "refresh": "Start, enable and look at refreshes.",
                "manifest": "Register what a refresh does.",
            },
        ),
        (
            "Operate",
            {
                "jobs": "See and cancel jobs.",
                "failures": "See what failed for good; run it again.",
                "pause": "Claim no more jobs of a pipeline, for a time.",
                "resume": "End a pause.",
            },
        ),
        (
            "Administer, beside the database",
            {
                "migrate": "Bring the schema up to date.",
                "restored": "Lift the numbers after a restore of the database.",
                "token": "Say who may read, publish and operate.",
                "connection": "Add and check databases that datasets come from.",
                "source": "Register their tables and queries; upload files.",
            },
        ),
    )

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by what one wants to do."""
        for title, commands in self.sections:
            with formatter.section(title):
                formatter.write_dl(list(commands.items()))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; what went wrong becomes a sentence and an exit code."""
        try:
            return super().invoke(ctx)
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except BrokenPipeError:  # `| head` has seen enough: click ends without a word, with 1
            raise
        except KeyboardInterrupt:
            raise click.exceptions.Exit(130) from None
        except Exception as error:
            if os.environ.get("LEASEWAY_TRACE"):
                raise
            raise click.ClickException(_sentence(error)) from error


def _sentence(error: Exception) -> str:
    """Explain an exception: by its own message, or by where to find more."""
    kind = type(error)
    if isinstance(error, ModuleNotFoundError):
        return f"This command works beside the database and needs {error.name}: `pip install -r requirements.txt`."
    if getattr(error, "sqlstate", None) in ("40001", "40P01"):
        return "The database was busy with the same thing: run it again."
    if kind.__module__.startswith(("chalicelib.", "localstack.")):
        return str(error) or (kind.__doc__ or kind.__name__).splitlines()[0]
    return f"{kind.__name__}: {error} (LEASEWAY_TRACE=1 shows where)"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="leaseway", prog_name="leaseway")
def leaseway() -> None:
    """Publish datasets: acknowledged at once, always finished.

    With LEASEWAY_URL and LEASEWAY_TOKEN a command speaks to that Leaseway over HTTP; a laptop needs nothing else.
    Without them it speaks to the local stack of this checkout, which `leaseway demo` sets up.

    Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted.
    """


def _keep_examples(command: click.Command) -> None:
    """Print the examples of a help text line by line: click folds a paragraph unless it begins with a backspace."""
    command.help = re.sub(r"^(Examples?:)$", "\b\n\\1", command.help or "", flags=re.MULTILINE)
    for part in command.commands.values() if isinstance(command, click.Group) else ():
        _keep_examples(part)


for command in (
    *running.COMMANDS,
    *loading.COMMANDS,
    *publishing.COMMANDS,
    *applying.COMMANDS,
    *operating.COMMANDS,
    *administering.COMMANDS,
    *sources.COMMANDS,
    *refreshing.COMMANDS,
):
    _keep_examples(command)
    leaseway.add_command(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line."""
    leaseway.main(args=list(arguments) if arguments is not None else sys.argv[1:], prog_name="leaseway")
