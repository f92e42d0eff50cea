"""What a command works with: the Leaseway of LEASEWAY_URL, or else the stack of this checkout."""

import json
import os
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .remote import Refused, Remote

if TYPE_CHECKING:
    from chalicelib.db import Database
    from chalicelib.settings import Settings
    from localstack.stack import Stack

CHECKOUT = Path(__file__).parents[2]
CACHE = CHECKOUT / ".leaseway" / "cache"
BESIDE = (
    "This command works beside the database, and LEASEWAY_URL leads to none: run it there, with DATABASE_URL, or unset"
    " LEASEWAY_URL to use the local stack."
)
NO_CHECKOUT = "There is no local stack here. Set LEASEWAY_URL and LEASEWAY_TOKEN to speak to a Leaseway elsewhere."


def folder() -> Path:
    """Where the local stack keeps everything; LEASEWAY_STACK names another one, as the tests do."""
    return Path(os.environ.get("LEASEWAY_STACK") or CHECKOUT / ".leaseway" / "stack")


@cache
def stack() -> "Stack":
    """Return the local stack of this checkout, running or not."""
    if not (CHECKOUT / "localstack").is_dir():
        raise Refused(NO_CHECKOUT)
    if str(CHECKOUT) not in sys.path:  # the installed command doesn't begin here
        sys.path.append(str(CHECKOUT))
    from localstack.stack import Stack

    found = Stack(folder())
    found.say = lambda text: click.echo(f"… {text}", err=True)
    return found


def enter() -> "Stack":
    """Return the local stack, and have this process use its database, queues, storage and keys."""
    os.environ.update(stack().environment())
    return stack()


def remote() -> Remote:
    """Return the Leaseway of LEASEWAY_URL, spoken to with LEASEWAY_TOKEN; else the local one, as its operator."""
    if url := os.environ.get("LEASEWAY_URL"):
        return Remote(url, os.environ.get("LEASEWAY_TOKEN"), "Check LEASEWAY_URL and the network.")
    return here("operator")


def here(role: str) -> Remote:
    """Return the Leaseway of the local stack, spoken to with its own token of that role."""
    file = token_file(role)
    token = file.read_text().strip() if file.exists() else None
    return Remote(stack().url, token, "`leaseway up` starts the local stack.")


def token_file(role: str) -> Path:
    """Where the local stack's own token of a role lies, readable by its owner alone."""
    return folder() / "tokens" / role


def administer() -> "tuple[Settings, Database]":
    """Return settings and database for what needs no server: those of DATABASE_URL, else the local stack's."""
    from chalicelib.db import Database
    from chalicelib.settings import settings

    if is_local():
        enter()
    found = settings()
    return found, Database(found.dsn)


def keep_secret(name: str) -> bool:
    """Have the local stack keep a connection's secret of this environment; elsewhere the deployment knows it."""
    if is_local() and (value := os.environ.get(name)):
        stack().keep(name, value)
        return True
    return False


def is_local() -> bool:
    """Whether no database is named, so that the local stack's is meant; Refused where LEASEWAY_URL says otherwise."""
    if any(os.environ.get(name) for name in ("DATABASE_URL", "LEASEWAY_DATABASE_SECRET")):
        return False
    if os.environ.get("LEASEWAY_URL"):
        raise Refused(BESIDE)
    return True


def keep_tokens(database: "Database") -> None:
    """Have tokens for the commands of this checkout and its examples; what is there already stays."""
    from chalicelib.security import create_token

    for role in ("operator", "publisher", "reader"):
        if not token_file(role).exists():
            _keep(token_file(role), create_token(database, f"{role} of this checkout", role))


def _keep(file: Path, token: str) -> None:
    """Write a token so that it is never readable by others, not for a moment."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with open(file, "x", opener=lambda path, flags: os.open(path, flags, 0o600)) as kept:
        kept.write(token + "\n")


def run_function(stack: "Stack", resource: str) -> None:
    """Run a scheduled function of the local stack as EventBridge does, now."""
    from localstack.deploy import function_name

    event: dict[str, object] = dict.fromkeys(("id", "account", "region", "version", "source", "detail-type"), "")
    event |= {"time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}", "resources": [], "detail": {}}
    name = function_name(stack, resource)
    answer = stack.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event))
    if "FunctionError" in answer:
        raise Refused(f"{name} failed: {answer['Payload'].read().decode()}")


def catch_up(stack: "Stack") -> None:
    """Recover and catch up at once after a time without power; the rules begin only a minute after their deployment."""
    for resource in ("Recovery", "CatchUp"):
        run_function(stack, resource)
