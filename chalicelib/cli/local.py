"""What a command works with: the Leaseway of LEASEWAY_URL, or else the stack of this checkout."""

import os
from collections.abc import Callable
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
NO_CHECKOUT = "There is no local stack here. Set LEASEWAY_URL and LEASEWAY_TOKEN to speak to a Leaseway elsewhere."


def folder() -> Path:
    """Where the local stack keeps everything; LEASEWAY_STACK names another one, as the tests do."""
    return Path(os.environ.get("LEASEWAY_STACK") or CHECKOUT / ".leaseway" / "stack")


@cache
def stack() -> "Stack":
    """Return the local stack of this checkout, running or not."""
    if not (CHECKOUT / "localstack").is_dir():
        raise Refused(NO_CHECKOUT)
    from localstack.stack import Stack

    return Stack(folder())


def remote() -> Remote:
    """Return the Leaseway to speak to: LEASEWAY_URL's with LEASEWAY_TOKEN, else the local one with its operator's token."""
    token = os.environ.get("LEASEWAY_TOKEN")
    if url := os.environ.get("LEASEWAY_URL"):
        return Remote(url, token, "Check LEASEWAY_URL and the network.")
    if not folder().is_dir():
        raise Refused(NO_CHECKOUT if not (CHECKOUT / "localstack").is_dir() else "Nothing is set up yet: `leaseway demo`.")
    return Remote(
        stack().environment()["PUBLIC_URL"],
        token or read_token("operator"),
        "The local stack is down: `leaseway up` starts it.",
    )


def token_file(role: str) -> Path:
    """Where the local stack's own token of a role lies, readable by its owner alone."""
    return folder() / "tokens" / role


def read_token(role: str) -> str | None:
    """Read the local stack's own token of a role."""
    file = token_file(role)
    return file.read_text().strip() if file.exists() else None


def keep_token(role: str, token: str) -> None:
    """Keep a token for the commands of this checkout; it is never readable by others, not for a moment."""
    file = token_file(role)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    file.unlink(missing_ok=True)
    with open(file, "w", opener=lambda path, flags: os.open(path, flags | os.O_EXCL, 0o600)) as kept:  # noqa: PTH123
        kept.write(token + "\n")


def administer() -> "tuple[Settings, Database]":
    """Return settings and database for the commands that need no server: those of DATABASE_URL, else the local stack's."""
    from chalicelib.db import Database
    from chalicelib.settings import settings

    if not any(os.environ.get(name) for name in ("DATABASE_URL", "LEASEWAY_DATABASE_SECRET")):
        os.environ.update(stack().environment())
    found = settings()
    return found, Database(found.dsn())


def explained[**P, R](command: Callable[P, R]) -> Callable[P, R]:
    """Turn what the database commands raise into one sentence."""
    import functools

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except click.ClickException:
            raise
        except Exception as error:
            from chalicelib.db import DatabaseAway

            if isinstance(error, DatabaseAway):
                raise Refused(f"{error} Is the stack up? `leaseway up` starts it.") from error
            raise

    return run
