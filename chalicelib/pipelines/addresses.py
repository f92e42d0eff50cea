"""The address of a connection, from the secret that this function was given."""

import os

from chalicelib.db import Row
from chalicelib.engine import PermanentFailure
from chalicelib.exports.address import BadAddress, secured


def address(connection: Row) -> str:
    """The DSN, encrypted and verified unless it stays on this machine; PermanentFailure where it can't be used."""
    dsn = os.environ.get(connection["secret"])
    if not dsn:
        raise PermanentFailure("unknown_secret")
    try:
        return secured(dsn)
    except BadAddress as error:
        raise PermanentFailure("bad_address") from error
