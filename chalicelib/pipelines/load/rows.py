"""The rows of a load: read by their dialect, each cell brought into PostgreSQL's form, what doesn't fit named.

A cell is taken only where there is no doubt what it means; the same rules hold for a body and for an uploaded file.
"""

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from chalicelib.datasets.store import StoreColumn
from chalicelib.exports.files import DATE_PARTS, Cell, Dialect, FileFault, Raw, Reading, Record, array

TOLD = 100
"""How many bad rows are told, the first ones; all of them are counted."""

LONGEST_KEY = 2_000
"""Bytes of a row's key; an index of PostgreSQL's takes 2,704."""

SHOWN = 100
"""Characters of a bad value that its sender gets to see again."""

Row = list[str | None]
"""A row as PostgreSQL takes it, in the order of the store's columns."""


@dataclass(frozen=True)
class BadRow:
    """A row that can't be loaded: its number, the first column that doesn't fit, the reason, what stands there."""

    row: int
    column: str
    reason: str
    value: str | None = None


class Unfit(Exception):
    """The rows can't be loaded: a code, and details that hold nothing of theirs.

    ``bad`` has the first bad rows; ``named``, a name or a sentence, is for the sender alone.
    """

    def __init__(self, code: str, *, bad: Sequence[BadRow] = (), named: str = "", **details: Any):
        super().__init__(code)
        self.code = code
        self.bad = bad
        self.named = named
        self.details = details


def records(chunks: Iterable[bytes], dialect: Dialect, *, as_array: bool = False) -> Iterator[Record]:
    """The records of a body or a file; Unfit where it isn't what its dialect says."""
    try:
        for _, record in array(_text(chunks)) if as_array else Reading(chunks, dialect):
            yield record
    except FileFault as fault:
        column: dict[str, Any] = {} if fault.column is None else {"column": fault.column}
        raise Unfit("unreadable_rows", named=str(fault), record=fault.line, **column) from None


def _text(chunks: Iterable[bytes]) -> str:
    try:
        return b"".join(chunks).decode()
    except UnicodeDecodeError:
        raise FileFault(1, None, "it isn't UTF-8.") from None


class Checked:
    """Iterates over the good rows; at the end Unfit, if any was bad or there was none.

    After the first bad row no more are given: what was given before is thrown away then. ``alive`` is called every
    thousand records, bad or good.
    """

    def __init__(
        self,
        found: Iterable[Record],
        columns: Sequence[StoreColumn],
        key: Sequence[str],
        dialect: Dialect,
        alive: Callable[[], None] = lambda: None,
    ):
        self.rows = 0
        self.bad: list[BadRow] = []
        self._bad = 0
        self._records = found
        self._alive = alive
        self._csv = dialect.format == "csv"
        self._columns = [(column, _remembering(column.type, TAKERS[column.type](dialect))) for column in columns]
        self._names = {column.name for column in columns}
        places = {column.name: place for place, column in enumerate(columns)}
        self._key = [(name, places[name], SAME.get(columns[places[name]].type, str)) for name in key]
        self._seen: set[object] = set()

    def __iter__(self) -> Iterator[Row]:
        for record in self._records:
            self.rows += 1
            if self.rows % 1000 == 0:
                self._alive()
            if record.keys() != self._names:
                self._check_names(record)
            row = self._row(record)
            if row is not None and self._is_new(row) and not self._bad:
                yield row
        if self._bad:
            raise Unfit("invalid_rows", bad=self.bad, records=self._bad)
        if not self.rows:
            raise Unfit("no_rows")

    def _check_names(self, record: Record) -> None:
        for place, name in enumerate(record, 1):
            if name not in self._names:
                # Only its place is kept: the first line of a file without a header is a row.
                where: dict[str, Any] = {"column": place} if self._csv else {"record": self.rows}
                raise Unfit("unknown_column", named=name[:SHOWN], **where)
        for column, _ in self._columns if self._csv else ():  # no row has it
            if column.required and column.name not in record:
                raise Unfit("missing_column", named=column.name, column=column.name)

    def _row(self, record: Record) -> Row | None:
        row: Row = []
        for column, take in self._columns:
            cell = record.get(column.name)
            taken = None if cell is None else take(cell)
            if taken is None and (cell is not None or column.required):
                self._refuse(column.name, "missing" if cell is None else f"not_{column.type}", cell)
                return None
            row.append(taken)
        return row

    def _is_new(self, row: Row) -> bool:
        cells = [(name, row[place] or "", same) for name, place, same in self._key]
        if sum(len(cell.encode()) for _, cell, _ in cells) > LONGEST_KEY:
            self._refuse(cells[0][0], "key_too_long", cells[0][1])
            return False
        identity = tuple(same(cell) for _, cell, same in cells)
        if identity in self._seen:
            self._refuse(cells[0][0], "key_twice", cells[0][1])
            return False
        self._seen.add(identity)
        return True

    def _refuse(self, column: str, reason: str, cell: Cell) -> None:
        self._bad += 1
        if self._bad <= TOLD:
            self.bad.append(BadRow(self.rows, column, reason, None if cell is None else str(cell[:SHOWN])))


# What a cell becomes; None where it is no value of the type.

Taker = Callable[[str], str | None]

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?[0-9]{1,1000}(?:\.[0-9]{1,1000})?(?:[eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?")
_ZONE = re.compile(r"(.*)(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_DIGIT = re.compile(r"[0-9]")
_FURTHEST = timedelta(hours=16)
"""From UTC: PostgreSQL's own limit of an offset."""


def _remembering(type_: str, take: Taker) -> Taker:
    """The same, but what comes again and again isn't looked at anew: a third of the time, for flights.

    What a JSON file has without quotes equals the text, so a type that tells them apart can't remember.
    """
    return take if type_ in ("text", "json") else lru_cache(16_384)(take)


def _as_text(cell: str) -> str | None:
    return None if isinstance(cell, Raw) else cell  # JSON's 1067 may have been 01067


def _integer(cell: str) -> str | None:
    return cell if _INTEGER.fullmatch(cell) and -(2**63) <= int(cell) < 2**63 else None


def _decimal(dialect: Dialect) -> Taker:
    def take(cell: str) -> str | None:
        if dialect.decimal != ".":
            if "." in cell:
                return None
            cell = cell.replace(dialect.decimal, ".")
        return cell if _NUMBER.fullmatch(cell) else None

    return take


def _double(dialect: Dialect) -> Taker:
    decimal = _decimal(dialect)

    def take(cell: str) -> str | None:
        taken = decimal(cell)
        if taken is None:
            return None
        number = float(taken)
        lost = number == 0 and Decimal(taken) != 0
        return None if math.isinf(number) or lost else taken

    return take


def _boolean(cell: str) -> str | None:
    return cell if cell in ("true", "false") else None


def _date(dialect: Dialect) -> Taker:
    pattern = dialect.date
    at = {part: slice(pattern.index(part), pattern.index(part) + len(part)) for part in DATE_PARTS}
    shape = re.sub("[YMD]", "0", pattern)

    def take(cell: str) -> str | None:
        if _DIGIT.sub("0", cell) != shape:
            return None
        return _is_date("-".join(cell[at[part]] for part in DATE_PARTS))

    return take


def _is_date(cell: str) -> str | None:
    return cell if _DATE.fullmatch(cell) and _exists(date.fromisoformat, cell) else None


def _time(cell: str) -> str | None:
    return cell if _TIME.fullmatch(cell) and _exists(time.fromisoformat, cell) else None


def _timestamp(cell: str) -> str | None:
    return cell if cell[10:11] in ("T", " ") and _is_date(cell[:10]) and _time(cell[11:]) else None


def _timestamptz(cell: str) -> str | None:
    found = _ZONE.fullmatch(cell)
    if not found or not _timestamp(found[1]) or not _exists(datetime.fromisoformat, cell):
        return None
    offset = datetime.fromisoformat(cell).utcoffset()
    return cell if offset is not None and abs(offset) < _FURTHEST else None


def _exists(read: Callable[[str], object], cell: str) -> bool:
    try:
        read(cell)
    except ValueError:
        return False
    return True


def _uuid(cell: str) -> str | None:
    return cell if _UUID.fullmatch(cell) else None


def _json(dialect: Dialect) -> Taker:
    def take(cell: str) -> str | None:
        if dialect.format == "jsonl":
            return cell if isinstance(cell, Raw) else json.dumps(cell, ensure_ascii=False)
        try:
            json.loads(cell, parse_constant=_is_none)
        except (ValueError, RecursionError):
            return None
        return cell

    return take


def _is_none(name: str) -> None:
    raise ValueError(name)


def _binary(cell: str) -> str | None:
    return f"\\x{cell}" if _HEX.fullmatch(cell) else None


TAKERS: dict[str, Callable[[Dialect], Taker]] = {
    "text": lambda _: _as_text,
    "boolean": lambda _: _boolean,
    "integer": lambda _: _integer,
    "decimal": _decimal,
    "double": _double,
    "date": _date,
    "time": lambda _: _time,
    "timestamp": lambda _: _timestamp,
    "timestamptz": lambda _: _timestamptz,
    "uuid": lambda _: _uuid,
    "json": _json,
    "binary": lambda _: _binary,
}

SAME: dict[str, Callable[[str], object]] = {
    "integer": int,
    "decimal": Decimal,
    "time": time.fromisoformat,
    "timestamp": datetime.fromisoformat,
    "timestamptz": datetime.fromisoformat,
    "uuid": str.lower,
    "binary": str.lower,
}
"""What two cells of a key have in common exactly when PostgreSQL calls them equal; else it is the text."""
