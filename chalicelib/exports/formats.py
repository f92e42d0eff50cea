"""CSV, JSON and XML, written by the source's PostgreSQL: one COPY a file, each row a record.

The client only joins rows: formatted in Python the three files of 300,000 records take 6 to 31 s, here they take 4.
"""

# ruff: noqa: S608 - names are quoted by `quoted`, elements are `element_name`s, and a query is an operator's

import re
from codecs import BOM_UTF8
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from .types import TYPES


@dataclass(frozen=True)
class Column:
    """A published column: its name in the files, its declared type, its name at the source."""

    name: str
    type: str
    source: str


@dataclass(frozen=True)
class Format:
    """A file format: what stands around the records and how the server writes one.

    A file may be written in pieces, each of some records: what they give one after the other doesn't depend on where
    they were cut.
    """

    name: str
    suffix: str
    """What its files' names end with, after the dataset's and a dot."""
    media_type: str
    header: Callable[[Sequence[Column]], bytes]
    separator: bytes
    footer: bytes
    query: Callable[[Sequence[Column], str], str]
    """The query that writes each of the ordered records as this format's row."""
    options: str
    clean: Callable[[bytes], tuple[bytes, int]]
    """What is done to the joined rows, and how many characters it removed."""

    def records(self, rows: Sequence[bytes | memoryview], *, first: bool) -> tuple[bytes, int]:
        """What stands in the file for some rows of the server's, and how many characters were removed.

        ``first``: they begin with the file's first record.
        """
        cleaned, removed = self.clean(self.separator.join(rows))
        return (cleaned if first else self.separator + cleaned), removed


@dataclass(frozen=True)
class FileSpec:
    """A file to write, and whether its gzip variant is written beside it."""

    format: Format
    gzip: bool = False


def quoted(name: str) -> str:
    """An identifier as SQL takes it, whatever it holds."""
    return '"' + name.replace('"', '""') + '"'


def _value(column: Column) -> str:
    return TYPES[column.type].value.format(_source(column))


def _source(column: Column) -> str:
    return f"record.{quoted(column.name)}"


def _csv(columns: Sequence[Column], records: str) -> str:
    values = ", ".join(f"{_value(column)} as {quoted(column.name)}" for column in columns)
    return f"select {values} from {records}"


def _json(columns: Sequence[Column], records: str) -> str:
    values = ", ".join(
        f"{(TYPES[column.type].json or TYPES[column.type].value).format(_source(column))} as {quoted(column.name)}"
        for column in columns
    )
    return f"select row_to_json(object.*) from (select {values} from {records}) as object"


# Safe in XML 1.0 by the fourth edition too, which expat goes by.
UNSAFE = re.compile(r"^[^A-Za-z_À-ÖØ-öø-ÿ]|[^A-Za-z0-9_.À-ÖØ-öø-ÿ-]|^[xX](?=[mM][lL])|_(?=x)")


def element_name(name: str) -> str:
    """A column's name as an element's: ``my col`` is ``my_x0020_col``, reversible (ISO 9075-14, fully escaped)."""
    return UNSAFE.sub(lambda found: f"_x{ord(found[0]):04X}_", name)


# ">" for the sake of "]]>"; a parser would turn a bare CR into LF; LF so that a record stays one line.
ESCAPES = (("'&'", "'&amp;'"), ("'<'", "'&lt;'"), ("'>'", "'&gt;'"), ("chr(13)", "'&#13;'"), ("chr(10)", "'&#10;'"))


def _xml(columns: Sequence[Column], records: str) -> str:
    elements = []
    for column in columns:
        value = _value(column)
        if TYPES[column.type].escaped:
            for character, reference in ESCAPES:
                value = f"replace({value}, {character}, {reference})"
        name = element_name(column.name)
        elements.append(f"coalesce('<{name}>' || ({value}) || '</{name}>', '<{name} xsi:nil=\"true\"/>')")
    # Functions take at most 100 arguments, and a chain of || copies its left side at every step.
    groups = [f"concat({', '.join(elements[i : i + 50])})" for i in range(0, len(elements), 50)]
    return f"select concat('<record>', {', '.join(groups)}, '</record>') from {records}"


# A row as it is, without escaping or quoting: CSV of one column whose quote and delimiter don't occur in it. Where \x01
# does occur (or a line break in a json value), the server doubles it and wraps the row in it; ``_bare`` undoes that.
RAW = "format csv, quote e'\\x01', delimiter e'\\x02', encoding 'UTF8'"
QUOTE = b"\x01"
NOT_IN_XML = bytes(set(range(0x20)) - set(b"\t\n\r"))
NONCHARACTERS = (b"\xef\xbf\xbe", b"\xef\xbf\xbf")  # U+FFFE and U+FFFF


def _as_it_is(rows: bytes) -> tuple[bytes, int]:
    return rows, 0


def _clean_json(rows: bytes) -> tuple[bytes, int]:
    # JSON's own escapes leave no control character in a row.
    return rows.replace(QUOTE, b""), 0


def _clean_xml(rows: bytes) -> tuple[bytes, int]:
    """Remove what XML 1.0 can't hold: C0 controls but tab, LF and CR, U+FFFE and U+FFFF."""
    cleaned = rows.translate(None, NOT_IN_XML)
    removed = 0
    if len(cleaned) != len(rows):
        for row in rows.split(b"\n"):
            removed += len(row := _bare(row)) - len(row.translate(None, NOT_IN_XML))
    for noncharacter in NONCHARACTERS:
        if found := cleaned.count(noncharacter):
            removed += found
            cleaned = cleaned.replace(noncharacter, b"")
    return cleaned, removed


def _bare(row: bytes) -> bytes:
    return row[1:-1].replace(QUOTE * 2, QUOTE) if row.startswith(QUOTE) else row


def _text(text: str) -> Callable[[Sequence[Column]], bytes]:
    return lambda _: text.encode()


def _names(columns: Sequence[Column]) -> bytes:
    """The line of names, quoted as the server quotes a value."""
    names = [column.name for column in columns]
    return ",".join(f'"{n.replace('"', '""')}"' if re.search('[",\r\n]', n) else n for n in names).encode() + b"\n"


CSV = Format("csv", "csv", "text/csv", _names, b"", b"", _csv, "format csv, encoding 'UTF8'", _as_it_is)
CSV_WITH_BOM = replace(CSV, header=lambda columns: BOM_UTF8 + _names(columns))
"""For spreadsheets that guess another encoding else."""
JSON = Format("json", "json", "application/json", _text("["), b",", b"]\n", _json, RAW, _clean_json)
XML = Format(
    "xml",
    "xml",
    "application/xml",
    _text('<?xml version="1.0" encoding="UTF-8"?>\n<records xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">\n'),
    b"",
    b"</records>\n",
    _xml,
    RAW,
    _clean_xml,
)


def copy_statement(format_: Format, columns: Sequence[Column], source: str) -> str:
    """The COPY that writes one file of ``source`` (a relation, or a query in brackets).

    The records are ordered by every published column: two that tie are the same in the file, so its bytes depend on
    nothing but the records, in this file, the other ones and the next version's. Only what is published is sorted
    (a third of a COPY csv more: 0.30 s for 0.20 s on 336,776 × 19).
    """
    order = ", ".join(
        key.format(f"source.{quoted(column.source)}") for column in columns for key in TYPES[column.type].order
    )
    return _copy_statement(format_, columns, f"{source} as source order by {order}")


def search_statement(format_: Format, columns: Sequence[Column], source: str, limit: int | None) -> str:
    """The COPY that writes the same rows in the order in which the source gives them, up to where it breaks off.

    Without columns it only gives the records.
    """
    if not columns:
        return f"copy (select null from {source} as source limit {limit or 'all'}) to stdout"
    return _copy_statement(format_, columns, f"{source} as source limit {limit or 'all'}")


def _copy_statement(format_: Format, columns: Sequence[Column], source: str) -> str:
    picked = ", ".join(f"source.{quoted(column.source)} as {quoted(column.name)}" for column in columns)
    records = f"(select {picked} from {source}) as record"
    return f"copy ({format_.query(columns, records)}) to stdout ({format_.options})"
