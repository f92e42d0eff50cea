"""The first records of a source: what its columns are, what is missing, and which characters look wrong."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from .files import Reading
from .relation import Relation, snapshot
from .types import type_of

RECORDS = 100

SUSPECT = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ufffd-\uffff]|[\u00c2\u00c3][\x80-\xbf\u0152-\u2122]|â€.")
"""Controls, replacement characters, and UTF-8 that was read as windows-1252 (Ã¼)."""


@dataclass(frozen=True)
class Looked:
    """A column: its type at the source, the type it may be declared as, and what the records that were read have.

    ``suspects`` counts the cells that hold one of ``characters``.
    """

    name: str
    found: str
    type: str | None
    nulls: int
    suspects: int
    characters: list[str]


def of_relation(relation: Relation) -> tuple[int, list[Looked]]:
    """How many records were read, at most RECORDS, and the columns; SourceError."""
    with snapshot(relation) as source:
        described = source.describe()
        rows = source.first([name for name, _ in described], RECORDS)
    columns = [
        _looked(name, str(found), type_of(found), [row[at] for row in rows])
        for at, (name, found) in enumerate(described)
    ]
    return len(rows), columns


def of_file(reading: Reading, types: dict[str, str]) -> tuple[int, list[Looked]]:
    """The same of a file whose columns were found to be of these types."""
    records = [record for _, record in islice(reading, RECORDS)]
    columns = [_looked(name, type_, type_, [record.get(name) for record in records]) for name, type_ in types.items()]
    return len(records), columns


def _looked(name: str, found: str, type_: str | None, cells: Sequence[str | None]) -> Looked:
    values = [cell for cell in cells if cell is not None]
    suspects = [parts for value in values if (parts := SUSPECT.findall(value))]
    characters = sorted(
        {" ".join(f"U+{ord(character):04X}" for character in part) for parts in suspects for part in parts}
    )
    return Looked(name, found, type_, len(cells) - len(values), len(suspects), characters)
