"""Where a source's records are: a connection's address, from the secret that this function was given; a store."""

import os

from chalicelib.datasets.store import is_made, store_relation
from chalicelib.db import Row, Sql
from chalicelib.engine import PermanentFailure
from chalicelib.exports.address import BadAddress, secured
from chalicelib.exports.errors import SourceError


def address(connection: Row) -> str:
    """The DSN, encrypted and verified unless it stays on this machine; PermanentFailure where it can't be used."""
    dsn = os.environ.get(connection["secret"])
    if not dsn:
        raise PermanentFailure("unknown_secret", secret=connection["secret"])
    try:
        return secured(dsn)
    except BadAddress as error:
        raise PermanentFailure("bad_address") from error


def loaded_relation(db: Sql, dataset: str, source: str) -> str:
    """A store's name as SQL takes it; SourceError, in the words of ``source``, where nothing was loaded yet."""
    if not is_made(db, dataset):
        raise SourceError("store_empty", relation=source)
    return store_relation(dataset)
