"""A source's records in chunks, in the order of the key, so that copying them may go on where it broke off."""

from collections.abc import Sequence

from psycopg import sql

from chalicelib.exports.formats import quoted
from chalicelib.exports.types import TYPES

from .manifest import Contract


class Chunks:
    """What stands behind FROM for each chunk; several records with one key are never parted."""

    def __init__(self, contract: Contract, size: int):
        by_name = {column.name: column for column in contract.columns}
        columns = [by_name[name] for name in contract.key]
        names = [f"source.{quoted(column.source_name or column.name)}" for column in columns]
        self._size = size
        self._there = " and ".join(f"{name} is not null" for name in names)
        # One order, whatever the server's collation is.
        self._order = ", ".join(
            TYPES[column.type].order[0].format(name) for column, name in zip(columns, names, strict=True)
        )
        self.without_key = f"where not ({self._there})"
        self.key = f"array[{', '.join(f'{name}::pg_catalog.text' for name in names)}]"

    def after(self, last: Sequence[str] | None) -> str:
        """The chunk after this key, or the first one."""
        later = ""
        if last is not None:
            # The literals have no type: each takes that of the column it is compared with.
            values = ", ".join(sql.Literal(value).as_string(None) for value in last)
            later = f" and row({self._order}) operator(pg_catalog.>) row({values})"
        return f"where {self._there}{later} order by {self._order} fetch first {self._size} rows with ties"
