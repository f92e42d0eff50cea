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

WIDEST = 8_160
"""Bytes of a row on PostgreSQL's pages, when all that can be is kept outside of it."""

FITS = 330
"""So many values always fit, with their padding: one that is kept outside leaves 18 bytes, a short one takes 21."""

SMALLEST = {"boolean": 1, "integer": 8, "double": 8, "date": 4, "time": 8, "timestamp": 8, "timestamptz": 8, "uuid": 16}
"""Bytes of a value; one of another type is as long as it is."""

SHRUNK = 12
"""Bytes that are left of a long value at least, compressed."""

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


class Records:
    """The records of a body or a file; Unfit where it isn't what its dialect says."""

    def __init__(self, chunks: Iterable[bytes], dialect: Dialect, *, as_array: bool = False):
        self._chunks = chunks
        self._reading = None if as_array else Reading(chunks, dialect)

    def header(self) -> list[str]:
        """The names in a CSV's first line, once it is read."""
        return self._reading.columns if self._reading else []

    def __iter__(self) -> Iterator[Record]:
        try:
            for _, record in self._reading or array(_text(self._chunks)):
                yield record
        except FileFault as fault:
            column: dict[str, Any] = {} if fault.column is None else {"column": fault.column}
            raise Unfit("unreadable_rows", named=str(fault), record=fault.line, **column) from None


def _text(chunks: Iterable[bytes]) -> str:
    try:
        return b"".join(chunks).decode().lstrip("\ufeff")
    except UnicodeDecodeError:
        raise FileFault(1, None, "it isn't UTF-8.") from None


class Checked:
    """Iterates over the good rows; at the end Unfit, if any was bad or there was none.

    After the first bad row no more are given: what was given before is thrown away then. ``alive`` is called every
    thousand records, bad or good; ``header`` gives a CSV's names, also where no row follows.
    """

    def __init__(
        self,
        found: Iterable[Record],
        columns: Sequence[StoreColumn],
        key: Sequence[str],
        dialect: Dialect,
        alive: Callable[[], None] = lambda: None,
        header: Callable[[], Sequence[str]] = tuple,
    ):
        self.rows = 0
        self.bad: list[BadRow] = []
        self._bad = 0
        self._records = found
        self._alive = alive
        self._header = header
        self._csv = dialect.format == "csv"
        self._columns = columns
        # One memory a type: a column's own would be 16,384 cells times 1,600 columns.
        takers = {type_: _remembering(type_, TAKERS[type_](dialect)) for type_ in {column.type for column in columns}}
        self._takers = {column.name: (place, takers[column.type]) for place, column in enumerate(columns)}
        self._required = [place for place, column in enumerate(columns) if column.required]
        self._key = [(name, place := self._takers[name][0], SAME.get(columns[place].type, str)) for name in key]
        self._seen: set[object] = set()

    def __iter__(self) -> Iterator[Row]:
        names = self._takers.keys()
        for record in self._records:
            self.rows += 1
            if self.rows % 1000 == 0:
                self._alive()
            # Of a CSV all records have the first one's names.
            if record.keys() != names and not (self._csv and self.rows > 1):
                self._check_names(record)
            row = self._row(record)
            if row is not None and self._is_new(row) and not self._bad:
                yield row
        if self._bad:
            raise Unfit("invalid_rows", bad=self.bad, records=self._bad)
        if not self.rows:
            if header := self._header():  # a row would be refused for its names
                self._check_names(dict.fromkeys(header))
            raise Unfit("no_rows")

    def _check_names(self, record: Record) -> None:
        for place, name in enumerate(record, 1):
            if name not in self._takers:
                # Only its place is kept: the first line of a file without a header is a row.
                where: dict[str, Any] = {} if self._csv else {"record": self.rows}
                raise Unfit("unknown_column", named=name[:SHOWN], **where, column=place)
        for column in self._columns if self._csv else ():  # no row has it
            if column.required and column.name not in record:
                raise Unfit("missing_column", named=column.name, column=column.name)

    def _row(self, record: Record) -> Row | None:
        """What is sent is looked at, not each column: 400,000 rows of one cell each would be 700,000,000 of them."""
        row: Row = [None] * len(self._columns)
        for name, cell in record.items():
            if cell is not None:
                place, take = self._takers[name]
                row[place] = taken = take(cell)
                if taken is None:
                    self._refuse_first(record)
                    return None
        for place in self._required:
            if row[place] is None:
                self._refuse_first(record)
                return None
        if len(record) > FITS and (full := self._full_at(row)):
            self._refuse(full, "row_too_wide", None)
            return None
        return row

    def _refuse_first(self, record: Record) -> None:
        """Refuse a row for the first column that doesn't fit; once enough are told, it isn't looked for."""
        self._bad += 1
        if self._bad <= TOLD:
            self.bad.append(next(filter(None, (self._fault(column, record) for column in self._columns))))

    def _fault(self, column: StoreColumn, record: Record) -> BadRow | None:
        cell = record.get(column.name)
        if cell is None:
            return BadRow(self.rows, column.name, "missing") if column.required else None
        if self._takers[column.name][1](cell) is None:
            return BadRow(self.rows, column.name, f"not_{column.type}", str(cell[:SHOWN]))
        return None

    def _full_at(self, row: Row) -> str | None:
        """The column with which a row is larger than a page, however it is stored; padding isn't counted."""
        bytes_ = 24 + (len(row) + 7) // 8 * (None in row)
        for column, cell in zip(self._columns, row, strict=True):
            if cell is not None:
                bytes_ += SMALLEST.get(column.type) or _least(column.type, cell)
                if bytes_ > WIDEST:
                    return column.name
        return None

    def _is_new(self, row: Row) -> bool:
        values, length = [], 0
        for _, place, same in self._key:
            cell = row[place] or ""
            length += len(cell.encode())
            values.append(same(cell))
        if length > LONGEST_KEY:
            self._refuse(self._key[0][0], "key_too_long", row[self._key[0][1]])
            return False
        identity = values[0] if len(values) == 1 else tuple(values)
        if identity in self._seen:
            self._refuse(self._key[0][0], "key_twice", row[self._key[0][1]])
            return False
        self._seen.add(identity)
        return True

    def _refuse(self, column: str, reason: str, cell: Cell) -> None:
        self._bad += 1
        if self._bad <= TOLD:
            self.bad.append(BadRow(self.rows, column, reason, None if cell is None else str(cell[:SHOWN])))


def _least(type_: str, cell: str) -> int:
    """Bytes of a row that a value of no fixed length takes at least, its header among them."""
    if type_ == "decimal":  # four digits are two bytes; zeros before and after them are none
        digits = len(cell.lower().partition("e")[0].replace(".", "").strip("-0"))
        return min(3 + (digits + 3) // 4 * 2, SHRUNK)
    return min(1 + (len(cell) // 2 - 1 if type_ == "binary" else len(cell.encode())), SHRUNK)


# What a cell becomes; None where it is no value of the type.

Taker = Callable[[str], str | None]

_INTEGER = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?[0-9]{1,1000}(?:\.[0-9]{1,1000})?(?:[eE][+-]?[0-9]{1,3})?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIME = re.compile(r"[0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?")
_ZONE = re.compile(r"(.*)(?:Z|[+-][0-9]{2}(?::?[0-5][0-9])?)")  # Python takes +05:60, PostgreSQL doesn't
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2})*")
_DIGIT = re.compile(r"[0-9]")
_WHOLE = re.compile(r"\\\\|\\u[dD][89abAB]..\\u[dD][c-fC-F]..")  # escaped backslashes, and pairs
_UNHELD = re.compile(r"\\u(?:0000|[dD][89a-fA-F])")  # what no text of PostgreSQL's holds, nor a strict reader takes
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
            cell = cell if isinstance(cell, Raw) else json.dumps(cell, ensure_ascii=False)
        else:
            try:
                json.loads(cell, parse_constant=_is_none)
            except (ValueError, RecursionError):
                return None
        return None if "\\u" in cell and _UNHELD.search(_WHOLE.sub("", cell)) else cell

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
