"""The registry: connections, sources, definitions and versions, as rows that are added and hardly ever changed.

Every function takes a Database (a statement is its own transaction) or a Transaction, and gives rows.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from psycopg.types.json import Jsonb

from chalicelib.db import Row, Sql, statements

from . import Fault, Invalid
from .definition import Definition, dataset_id

SQL = statements("chalicelib.datasets")

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
NAME_RULE = "must be 1 to 63 of a-z, 0-9, _ and -, beginning with a letter or a digit"
DATASET = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
SECRET = re.compile(r"LEASEWAY_SECRET_[A-Z0-9_]+")


def add_connection(
    sql: Sql, name: str, secret: str, max_jobs: int | None = None, statement_timeout: int | None = None
) -> None:
    """Name a database that datasets come from; ``secret`` is the environment variable that holds its DSN.

    At most ``max_jobs`` exports (1) use it at a time; each of their statements may take ``statement_timeout`` seconds
    (0: what the login's own setting says). What isn't given stays as it is.
    """
    _check(
        ("name", NAME.fullmatch(name), NAME_RULE),
        ("secret", SECRET.fullmatch(secret), "must be LEASEWAY_SECRET_ and then A-Z, 0-9 and _"),
        ("max_jobs", max_jobs is None or 1 <= max_jobs <= 100, "must be 1 to 100"),
        (
            "statement_timeout",
            statement_timeout is None or 0 <= statement_timeout <= 86_400,
            "must be 0 to 86400 seconds",
        ),
    )
    sql.run(SQL.add_connection, name=name, secret=secret, max_jobs=max_jobs, statement_timeout=statement_timeout)


def connections(sql: Sql) -> list[Row]:
    """Every connection: name, secret (the variable's name), max_jobs, statement_timeout, created_at."""
    return sql.run(SQL.list_connections, name=None)


def connection(sql: Sql, name: str) -> Row | None:
    """The connection of that name."""
    return sql.one(SQL.list_connections, name=name)


def hold_connection(tx: Sql, name: str) -> bool:
    """Whether there is a connection of that name; if so, it can't be removed until the transaction ends."""
    return tx.one(SQL.hold_connection, name=name) is not None


def take_connection(tx: Sql, name: str) -> str | None:
    """Hold a connection against everybody until the transaction ends; its secret's name, None where it isn't there."""
    row = tx.one(SQL.take_connection, name=name)
    return str(row["secret"]) if row else None


def remove_connection(tx: Sql, name: str) -> None:
    """Remove a connection that nobody needs, once it is taken."""
    tx.run(SQL.remove_connection, name=name)


def register_source(tx: Sql, name: str, connection: str, relation: str | None, query: str | None) -> int:
    """Register a relation or a query of a connection as a source; the revision, a new one if the newest differs.

    Raises Invalid, which names the field. That the relation exists is seen when it is exported.
    """
    query = query.strip().rstrip(";").rstrip() if query is not None else None
    relation = relation.strip() if relation is not None else None
    _check(
        ("name", NAME.fullmatch(name), NAME_RULE),
        (
            "connection",
            hold_connection(tx, connection),
            f"'{connection}' isn't known; `leaseway connection add` adds it",
        ),
        ("relation", (relation is None) != (query is None), "must be given, or a query, not both"),
        ("relation", relation != "", "is empty; write schema.table"),
        ("query", query != "", "is empty; write a SELECT"),
    )
    return _register(tx, name, connection=connection, relation=relation, query=query)


def register_file(sql: Sql, name: str, file: Mapping[str, Any]) -> int:
    """Register an object as a source; the revision, a new one if the newest differs.

    ``file`` is {key, bytes, sha256, records, dialect, declared, columns: [{name, type, nulls}]}, where ``declared`` are
    those members of the dialect that weren't found by looking, and ``left_out`` where rows at its end are no records.
    Raises Invalid where the name doesn't fit.
    """
    check_source_name(name)
    return _register(sql, name, file=Jsonb(file))


def register_store(sql: Sql, name: str, dataset: str) -> int:
    """Register a dataset's store, what is loaded into it, as a source; the revision. Raises Invalid.

    The dataset may come later: its definition may well name this source.
    """
    _check(
        ("name", NAME.fullmatch(name), NAME_RULE),
        ("store", DATASET.fullmatch(dataset), "must be a dataset's id: 1 to 63 of a-z, 0-9 and -"),
    )
    return _register(sql, name, store=dataset)


def check_source_name(name: str) -> None:
    """Refuse what can't be a source's name, with Invalid."""
    _check(("name", NAME.fullmatch(name), NAME_RULE))


def _register(sql: Sql, name: str, **what: Any) -> int:
    nothing = dict.fromkeys(("connection", "relation", "query", "file", "store"))
    while True:
        row = sql.one(SQL.register_source, name=name, **nothing | what)
        if row:
            return int(row["revision"])


def sources(sql: Sql) -> list[Row]:
    """Every source at its newest revision: name, revision, connection, relation, query, file or store, created_at."""
    return sql.run(SQL.list_sources)


def source(sql: Sql, name: str, revision: int | None = None) -> Row | None:
    """A revision of a source, by default the newest."""
    return sql.one(SQL.find_source, name=name, revision=revision)


def hold_source(tx: Sql, name: str) -> Row | None:
    """A source's name and newest revision, if there is one; then it can't be removed until the transaction ends."""
    return tx.one(SQL.hold_source, name=name)


def take_source(tx: Sql, name: str) -> bool:
    """Hold a source against everybody until the transaction ends; whether there is one."""
    return bool(tx.run(SQL.take_source, name=name))


def remove_source(tx: Sql, name: str) -> list[str]:
    """Remove every revision of a source that nobody needs, once it is taken; the keys of its objects."""
    return [row["key"] for row in tx.run(SQL.remove_source, name=name)]


def definitions_of(sql: Sql, source: str) -> dict[str, Definition]:
    """The datasets that are made from a source, as they are defined now."""
    return {
        row["dataset_id"]: Definition.kept(row["body"])
        for row in sql.run(SQL.list_definitions_of_source, source=source)
    }


def put_definition(tx: Sql, dataset: str, definition: Definition) -> tuple[int, bool]:
    """Store a definition; its revision, and whether that is a new one (the newest had other content)."""
    tx.run(SQL.add_dataset, dataset=dataset_id(dataset))
    while True:
        row = tx.one(SQL.put_definition, dataset=dataset, body=Jsonb(definition.as_json()), etag=definition.etag)
        if row:
            return int(row["revision"]), bool(row["created"])


def definition(sql: Sql, dataset: str, revision: int | None = None) -> Row | None:
    """A revision of a dataset's definition, by default the newest: dataset_id, revision, body, etag, created_at."""
    return sql.one(SQL.find_definition, dataset=dataset, revision=revision)


def is_deleted(tx: Sql, dataset: str) -> bool:
    """Whether the dataset was deleted; if not, it can't be until the transaction ends."""
    row = tx.one(SQL.is_deleted, dataset=dataset)
    return row is not None and bool(row["deleted"])


def take_dataset(tx: Sql, dataset: str) -> Row | None:
    """Hold a dataset against everybody until the transaction ends: current_version, deleted_at."""
    return tx.one(SQL.take_dataset, dataset=dataset)


def delete_dataset(tx: Sql, dataset: str) -> None:
    """Delete a dataset that has no version left, once it is taken; its id is never given again."""
    tx.run(SQL.delete_dataset, dataset=dataset)


def lock_dataset(tx: Sql, dataset: str) -> Row:
    """Hold a dataset until the transaction ends, before any other lock: id, last_version, current_version."""
    row = tx.one(SQL.lock_dataset, dataset=dataset)
    if row is None:
        raise LookupError(dataset)
    return row


def add_version(
    tx: Sql,
    *,
    dataset: str,
    number: int,
    job: UUID,
    fence: int,
    definition: int,
    source: str,
    source_revision: int,
    issued_at: datetime,
    records: int,
    files: Sequence[Mapping[str, Any]],
    documents: Mapping[str, str],
    report: Mapping[str, Any],
    triples: int,
) -> None:
    """Add the next version and make it the current one, under the dataset's lock."""
    added = tx.one(
        SQL.add_version,
        dataset=dataset,
        number=number,
        job=job,
        fence=fence,
        definition=definition,
        source=source,
        source_revision=source_revision,
        issued_at=issued_at,
        records=records,
        files=Jsonb(files),
        documents=Jsonb(documents),
        report=Jsonb(report),
        triples=triples,
    )
    if added is None:
        raise LookupError(f"{number} isn't the next version of {dataset}")


def withdraw_version(tx: Sql, dataset: str, number: int, job: UUID) -> int | None:
    """Mark a version as withdrawn by a job, under the dataset's lock; the number that is the current one then."""
    row = tx.one(SQL.withdraw_version, dataset=dataset, number=number, job=job)
    if row is None:
        raise LookupError(f"{dataset} has no version {number}")
    current: int | None = row["current_version"]
    return current


def correct_version(tx: Sql, dataset: str, number: int, documents: Mapping[str, str], triples: int) -> None:
    """Store a version's documents anew, because a version they linked to was withdrawn, under the dataset's lock."""
    tx.run(SQL.correct_version, dataset=dataset, number=number, documents=Jsonb(documents), triples=triples)


def versions(sql: Sql, dataset: str) -> list[Row]:
    """Every version of a dataset, newest first, without documents and report."""
    return sql.run(SQL.list_versions, dataset=dataset)


def version(sql: Sql, dataset: str, number: int) -> Row | None:
    """One version, whole."""
    return sql.one(SQL.find_version, dataset=dataset, number=number)


def current_entries(sql: Sql) -> list[Row]:
    """What the catalogue lists: dataset_id, number, issued_at and the stored documents of each current version."""
    return sql.run(SQL.list_current_entries)


def _check(*rules: tuple[str, object, str]) -> None:
    faults = [Fault(field, detail) for field, holds, detail in rules if not holds]
    if faults:
        raise Invalid(faults)
