"""A contract looked at before it is registered: its source and its target are reached, and nothing is changed."""

import re
from collections.abc import Generator, Iterator

from chalicelib.codes import sentence
from chalicelib.datasets import registry as datasets
from chalicelib.db import Database, Row
from chalicelib.engine import PermanentFailure
from chalicelib.exports.errors import SourceError, spelt
from chalicelib.exports.formats import Column
from chalicelib.exports.relation import SILENCE, Relation, reach, snapshot
from chalicelib.pipelines.addresses import address

from . import registry
from .manifest import Contract, Manifest
from .target import SQL, TargetError, blaming_target, column_faults, identity


def look(db: Database, contract: Contract) -> Iterator[str]:
    """What a refresh of this contract would stumble over, each a sentence."""
    source = datasets.source(db, contract.source, contract.source_revision)
    target = datasets.connection(db, contract.target.connection)
    assert source is not None  # they were looked up when the sources were pinned
    assert target is not None
    identities: list[str | None] = []
    for findings in (_source(db, contract, source), _target(contract, target)):
        try:
            identities.append((yield from findings))
        except (PermanentFailure, SourceError, TargetError) as error:
            said = spelt(error.details)
            yield f"{sentence(error.code, error.details.get('sqlstate'))} [{error.code}{f': {said}' if said else ''}]"
    if len(identities) == 2 and identities[0] == identities[1]:
        yield f"{sentence('target_is_source')} [target_is_source: relation {contract.target.table}]"


def highest_fence(db: Database) -> int:
    """The highest fence that the targets of the newest manifest know; TargetError or PermanentFailure."""
    newest = registry.manifest(db)
    contracts = Manifest.parse(newest["body"]).contracts if newest else []
    fences = [0]
    for name in dict.fromkeys(contract.target.connection for contract in contracts):
        connection = datasets.connection(db, name)
        assert connection is not None  # one that a manifest names stays
        with blaming_target(name), reach(address(connection)) as reached:
            reached.patience = SILENCE
            if reached.execute(SQL.find_fence_table).fetchone() == (True,):
                found = reached.execute(SQL.find_highest_fence).fetchone()
                fences.append(found[0] if found else 0)
    return max(fences)


def _source(db: Database, contract: Contract, source: Row) -> Generator[str, None, str | None]:
    connection = datasets.connection(db, source["connection"])
    assert connection is not None  # a foreign key holds it
    columns = [Column(column.name, column.type, column.source_name or column.name) for column in contract.columns]
    relation = Relation(address(connection), source["relation"], source["query"], columns, name=source["name"])
    with snapshot(relation) as records:
        yield from ()
        return records.identity()


def _target(contract: Contract, connection: Row) -> Generator[str, None, str | None]:
    table = contract.target.table
    with blaming_target(table), reach(address(connection)) as reached:
        reached.patience = SILENCE
        for column in column_faults(reached, contract):
            yield f"{table}.{column} has a type that doesn't take what the contract declares."
        found_there = identity(reached, table)
        replaces = contract.mode == "replace"
        found = reached.execute(SQL.look_at_target, {"table": table, "replaces": replaces}).fetchone()
        assert found is not None
        lacking, has_schema, may_create = found
        if lacking:
            yield f"The login lacks {', '.join(re.findall('[A-Z]+', lacking))} on {table}: GRANT it."
        if not has_schema:
            yield "There is no schema leaseway there: CREATE SCHEMA leaseway AUTHORIZATION the login."
        elif not may_create:
            yield "The login may not CREATE in the schema leaseway there: make it its own."
        key = {"table": table, "key": sorted(contract.key)}
        if reached.execute(SQL.find_unique_key, key).fetchone() != (True,):
            yield f"{table} has no unique index on the contract's key: without one every merge reads all of it."
        return found_there
