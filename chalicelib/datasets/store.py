"""A dataset's store: the table that its loads fill, made from what its definition declares, and only ever widened.

It is named as the dataset, in the schema ``store``; its columns are named as the source's are (``from``), so that a
source that is a store is read like any other table.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from psycopg import sql

from chalicelib.db import Sql, statements

from .definition import Definition

SQL = statements("chalicelib.datasets")

TYPES = {
    "text": "text",
    "boolean": "boolean",
    "integer": "bigint",
    "decimal": "numeric",
    "double": "double precision",
    "date": "date",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "uuid": "uuid",
    "json": "json",
    "binary": "bytea",
}
"""The declared types that can be loaded, and what ``format_type`` calls them."""

MOST_COLUMNS = 1_600
"""Columns of a table of PostgreSQL's, those counted that the definition no longer has."""


@dataclass(frozen=True)
class StoreColumn:
    """A column of a store: its name, its declared type, whether a row must have a value in it."""

    name: str
    type: str
    required: bool


class StoreMismatch(Exception):
    """The store can't be widened to what the definition declares; ``column`` is the first that doesn't fit."""

    def __init__(self, column: str):
        super().__init__(StoreMismatch.__doc__)
        self.column = column


def store_columns(definition: Definition) -> list[StoreColumn]:
    """The columns of the store of a definition that has a key."""
    key = definition.key or []
    return [
        StoreColumn(column.source_name or column.name, column.type, bool(column.required) or column.name in key)
        for column in definition.columns
    ]


def store_key(definition: Definition) -> list[str]:
    """The names of the key's columns in the store, in order; none where the dataset takes no loads."""
    names = {column.name: column.source_name or column.name for column in definition.columns}
    return [names[name] for name in definition.key or []]


def store_relation(dataset: str) -> str:
    """The store's name as SQL takes it: an id holds nothing that would have to be doubled."""
    return f'store."{dataset}"'


def is_made(db: Sql, dataset: str) -> bool:
    """Whether anything was loaded into the store yet."""
    return bool(db.run(SQL.find_store_columns, dataset=dataset))


def check_store(db: Sql, dataset: str, definition: Definition) -> None:
    """Raise StoreMismatch where the store that is there can't be widened to the definition."""
    _widening(db, dataset, definition)


def prepare_store(tx: Sql, dataset: str, definition: Definition, *, anew: bool = False) -> int:
    """Make the store, or widen it; with ``anew`` one that can't be widened is made anew, and its rows are counted.

    The caller holds the dataset. Raises StoreMismatch without ``anew``.
    """
    dropped = 0
    try:
        changes = _widening(tx, dataset, definition)
    except StoreMismatch:
        if not anew:
            raise
        table = sql.Identifier("store", dataset)
        dropped = int(tx.run(_text(sql.SQL("select count(*) as rows from {}").format(table)))[0]["rows"])
        drop_store(tx, dataset)
        changes = _widening(tx, dataset, definition)
    if changes:
        tx.run(_text(changes))
    return dropped


def drop_store(tx: Sql, dataset: str) -> None:
    """Drop the store with all that was loaded; one that isn't there is fine."""
    tx.run(_text(sql.SQL("drop table if exists {}").format(sql.Identifier("store", dataset))))


def _widening(db: Sql, dataset: str, definition: Definition) -> sql.Composed | None:
    """The statement that makes the store what the definition declares, if one is needed; StoreMismatch."""
    there = {row["name"]: row for row in db.run(SQL.find_store_columns, dataset=dataset)}
    wanted, key = store_columns(definition), store_key(definition)
    table = sql.Identifier("store", dataset)
    if not there:
        return _made(table, wanted, key)
    for name in [*key, *(name for name, row in there.items() if row["key"] is not None)]:
        place = there.get(name, {}).get("key")
        if place is None or name not in key or place != key.index(name):
            raise StoreMismatch(name)
    changes: list[sql.Composable] = []
    for column in wanted:
        name, known = sql.Identifier(column.name), there.get(column.name)
        if known is None:
            if column.required and _any(db, table, sql.SQL("true")):
                raise StoreMismatch(column.name)
            changes.append(sql.SQL("add ") + _declared(column))
        elif known["type"] != TYPES[column.type]:
            raise StoreMismatch(column.name)
        elif column.required and not known["required"]:
            if _any(db, table, sql.SQL("{} is null").format(name)):
                raise StoreMismatch(column.name)
            changes.append(sql.SQL("alter {} set not null").format(name))
        elif known["required"] and not column.required:
            changes.append(sql.SQL("alter {} drop not null").format(name))
    for gone in there.keys() - {column.name for column in wanted}:  # its values stay, and new rows have none
        if there[gone]["required"]:
            changes.append(sql.SQL("alter {} drop not null").format(sql.Identifier(gone)))
    if len(there.keys() | {column.name for column in wanted}) > MOST_COLUMNS:
        raise StoreMismatch(next(column.name for column in wanted if column.name not in there))
    if not changes:
        return None
    return sql.SQL("alter table {} ").format(table) + sql.SQL(", ").join(changes)


def _made(table: sql.Identifier, columns: Sequence[StoreColumn], key: Sequence[str]) -> sql.Composed:
    return sql.SQL("create table {} ({}, primary key ({}))").format(
        table,
        sql.SQL(", ").join(_declared(column) for column in columns),
        sql.SQL(", ").join(map(sql.Identifier, key)),
    )


def _declared(column: StoreColumn) -> sql.Composed:
    null = sql.SQL(" not null" if column.required else "")
    return sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(TYPES[column.type])) + null


def _any(db: Sql, table: sql.Identifier, where: sql.Composable) -> bool:
    return bool(db.run(_text(sql.SQL("select true as found from {} where {} limit 1").format(table, where))))


def _text(statement: sql.Composable) -> str:
    """A statement as text; a per cent sign in a name is doubled, for parameters are looked for in it."""
    return statement.as_string().replace("%", "%%")
