"""Which statements write, and what may go wrong with each: the server refuses, or the connection is gone."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module, resources
from typing import Any

import psycopg
import pytest
from psycopg.rows import tuple_row

from chalicelib.db import Database, DatabaseAway, Transaction

CONFLICTS = ("40001", "40P01")
"""A serialisation failure, a deadlock: the server has answered, and nothing was done."""

PACKAGES = (
    "chalicelib",
    "chalicelib.cli",
    "chalicelib.datasets",
    "chalicelib.pipelines.export",
    "chalicelib.pipelines.load",
    "chalicelib.pipelines.refresh",
)
"""Whose statements write, beside the engine's."""

REFUSED = "do $$ begin raise sqlstate '{}' using message = 'a conflict'; end $$"
"""The server itself refuses: the transaction that is open there is over, and whatever else it is asked says 25P02."""

IDLE = psycopg.pq.TransactionStatus.IDLE

UNLOGGED = "select oid::regclass::text from pg_class where relpersistence = 'u' and relkind = 'r'"
"""What a crash of the server empties."""

_WRITES = re.compile(
    r"\b(insert into|update|delete from|merge into|nextval|setval|create|drop|alter|copy)\b", re.IGNORECASE
)
_NO_WRITE = re.compile(r"--[^\n]*|for (no key )?update", re.IGNORECASE)


def writes(sql: object) -> bool:
    """Whether a statement changes anything; what is put together at run time does."""
    return not isinstance(sql, str) or bool(_WRITES.search(_NO_WRITE.sub("", sql)))


def writing_statements(package: str) -> set[str]:
    """The names of a package's statements that write."""
    folder = resources.files(import_module(package)) / "sql"
    return {file.name.removesuffix(".sql") for file in folder.iterdir() if writes(file.read_text(encoding="utf-8"))}


def names(*packages: str) -> dict[str, str]:
    """The names of packages' statements by their texts."""
    return {
        file.read_text(encoding="utf-8"): file.name.removesuffix(".sql")
        for package in packages
        for file in (resources.files(import_module(package)) / "sql").iterdir()
    }


NAMES = names("chalicelib.engine", *PACKAGES)


class Fault:
    """Counts the writes and COMMITs, and disturbs one."""

    def __init__(self) -> None:
        self.watching, self.wrote = False, False
        self.points: list[tuple[str, bool]] = []  # a name, and whether it commits

    def watch(self, number: int | None = None, mode: str = "") -> None:
        self.watching, self.number, self.mode, self.points = True, number, mode, []

    def here(self, name: str, commits: bool) -> bool:
        if not self.watching:
            return False
        self.points.append((name, commits))
        return len(self.points) - 1 == self.number

    def strike(self, connection: Any, act: Callable[[], Any]) -> None:
        if self.mode in CONFLICTS:
            connection.execute(REFUSED.format(self.mode))
        if self.mode == "after":
            act()
        if self.mode == "crash":
            connection.execute("rollback")
            for (table,) in connection.cursor(row_factory=tuple_row).execute(UNLOGGED).fetchall():
                connection.execute(f"truncate {table}")
        connection.close()
        raise DatabaseAway(f"lost {self.mode} the COMMIT")


def modes(number: int, commits: bool) -> tuple[str, ...]:
    """The ways to go wrong. Within a transaction one conflict a statement, for nothing of ours tells them apart."""
    return (*CONFLICTS, "before", "after") if commits else (CONFLICTS[number % 2], "before")


def disturbing(monkeypatch: pytest.MonkeyPatch) -> Fault:
    """Has every write and COMMIT of this process pass a Fault."""
    made, run, transaction = Fault(), Transaction.run, Database.transaction

    def running(tx: Transaction, sql: Any, /, **params: object) -> Any:
        if writes(sql):
            alone = tx.connection.info.transaction_status == IDLE
            made.wrote = True
            if made.here(NAMES.get(sql, "a statement"), alone):
                made.strike(tx.connection, lambda: run(tx, sql, **params))
        return run(tx, sql, **params)

    @contextmanager
    def committing(db: Database) -> Iterator[Transaction]:
        connection = db._open()
        whole, struck = connection.info.transaction_status == IDLE, False
        made.wrote &= not whole
        with transaction(db) as tx:
            yield tx
            if whole and made.wrote and made.here("commit", True):
                struck = made.mode == "after"
                if not struck:
                    made.strike(connection, lambda: None)
        if struck:
            made.strike(connection, lambda: None)

    monkeypatch.setattr(Transaction, "run", running)
    monkeypatch.setattr(Database, "transaction", committing)
    return made
