"""What a command works with: the Leaseway of LEASEWAY_URL, or else the stack of this checkout."""

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from .remote import Refused, Remote

if TYPE_CHECKING:
    from localstack.stack import Stack

    from chalicelib.db import Database
    from chalicelib.settings import Settings

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
    """Return the Leaseway of LEASEWAY_URL, spoken to with LEASEWAY_TOKEN; else the local one, as its operator."""
    token = os.environ.get("LEASEWAY_TOKEN")
    if url := os.environ.get("LEASEWAY_URL"):
        return Remote(url, token, "Check LEASEWAY_URL and the network.")
    address = stack().environment()["PUBLIC_URL"]
    return Remote(address, token or read_token("operator"), "`leaseway up` starts the local stack.")


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
    with open(file, "w", opener=lambda path, flags: os.open(path, flags | os.O_EXCL, 0o600)) as kept:
        kept.write(token + "\n")


def administer() -> "tuple[Settings, Database]":
    """Return settings and database for what needs no server: those of DATABASE_URL, else the local stack's."""
    from chalicelib.db import Database
    from chalicelib.settings import settings

    if not any(os.environ.get(name) for name in ("DATABASE_URL", "LEASEWAY_DATABASE_SECRET")):
        os.environ.update(stack().environment())
    found = settings()
    return found, Database(found.dsn)
