"""Definitions compared with their sources before they are put, where those can be looked at from here."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Database, Row
from chalicelib.exports.address import BadAddress
from chalicelib.exports.check import sentence
from chalicelib.exports.errors import SourceError
from chalicelib.exports.relation import snapshot
from chalicelib.pipelines.export.specs import columns_of
from chalicelib.pipelines.export.staging import check
from chalicelib.settings import Settings

from . import show
from .local import administer
from .remote import Refused
from .sources import relation_of
from .yaml_files import Fault, YamlFile


def compare(files: Iterable[tuple[YamlFile, dict[str, Any]]]) -> tuple[list[Fault], dict[str, list[str]]]:
    """Compare each definition's columns with those of its source: the faults, and which sources weren't seen, by why.

    A store is what the definition makes it. A server that doesn't answer isn't asked again.
    """
    settings, database = administer()
    faults: list[Fault] = []
    unseen: dict[str, list[str]] = defaultdict(list)
    away: dict[str, str] = {}
    for file, content in files:
        definition = Definition.parse(content)
        source = registry.source(database, definition.source)
        if source is None or source["store"]:
            continue
        why = away.get(source["connection"])
        try:
            if not why:
                _look(settings, database, source, definition)
        except SourceError as error:
            if error.code == "source_changed" and "column" in error.details:
                faults += _faults(file, definition, source, error)
                continue
            why = sentence(error)
            if error.code in ("source_unreachable", "source_untrusted"):
                away[source["connection"]] = why
        except (BadAddress, Refused) as error:
            why = str(error)
        if why and source["name"] not in unseen[why]:
            unseen[why].append(source["name"])
    return faults, unseen


def _look(settings: Settings, database: Database, source: Row, definition: Definition) -> None:
    columns = columns_of(definition)
    if source["file"]:
        check(source, columns)
        return
    with snapshot(relation_of(settings, database, source, columns)) as seen:
        seen.check_names()


def _faults(file: YamlFile, definition: Definition, source: Row, error: SourceError) -> Iterator[Fault]:
    """A fault for each column that an error names, where the file has it."""
    details: dict[str, Any] = error.details
    there = {column["name"] for column in (source["file"] or {}).get("columns", ())}
    for at, column in enumerate(definition.columns):
        named = column.source_name or column.name
        if named not in (details["column"], *details.get("others", ())):
            continue
        is_there = named in there if source["file"] else "sqlstate" not in details
        what = f"is of another type than {column.type} there" if is_there else "isn't there"
        field = "name" if column.source_name is None else "from"
        told = f"{show.header(named)} {what}: `leaseway source check {source['name']}`"
        yield file.fault(f"columns[{at}].{field}", told)
    if more := details.get("more"):
        yield file.fault("columns", f"has {more} more that the source {source['name']} lacks")
