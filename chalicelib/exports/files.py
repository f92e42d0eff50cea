"""CSV and JSON Lines files as sources: read strictly by a declared dialect, or named by line and column.

A cell is a text, or None where there is none. Of a JSON file, what isn't a string is a Raw: its text as it stood there.
"""

import codecs
import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, islice
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any, Literal

ENCODINGS = {
    "utf-8": "utf-8",
    "utf-16": "",  # its byte order mark says which of the next two
    "utf-16-le": "utf-16-le",
    "utf-16-be": "utf-16-be",
    "windows-1252": "cp1252",
    **{f"iso-8859-{part}": f"iso8859-{part}" for part in (*range(1, 12), *range(13, 17))},
}
"""An encoding's name and Python's codec for it."""

MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""Byte order marks; those at the beginning are no part of the text."""

BINARIES = {b"PK\x03\x04": "an Excel workbook or another zip archive", bytes.fromhex("D0CF11E0"): "an Excel workbook"}
"""How files begin that are often uploaded as a CSV."""

PIECE = 256 * 1024
LONGEST_LINE = 16 * 1024 * 1024
LONGEST_CELL = 4 * 1024 * 1024
LONGEST_HEADER = 10_000  # characters; no definition can name a longer one
SHOWN = 100  # characters of a name in a message


class Raw(str):
    """What a JSON file has where it has no string: a number, true, false, an object or a list, as it is written."""

    __slots__ = ()


Cell = str | None
Record = Mapping[str, Cell]


@dataclass(frozen=True)
class Dialect:
    """How a file is written. Everything but the encoding is CSV's; a date format is made of YYYY, MM and DD."""

    format: Literal["csv", "jsonl"] = "csv"
    encoding: str = "utf-8"
    delimiter: str = ","
    quote: str = '"'
    decimal: str = "."
    date: str = "YYYY-MM-DD"
    null: str = ""
    skip: int = 0
    """Rows above the header, as CSV has them: an empty line is one, and so is a row with a quoted line break."""

    def as_json(self) -> dict[str, Any]:
        """What a source's revision keeps of it."""
        mine = asdict(self)
        return mine if self.format == "csv" else {name: mine[name] for name in ("format", "encoding")}


class FileFault(Exception):
    """The file isn't what its dialect says; the message says where: a line, and a column if there is one.

    In a line that can't be decoded, or is no JSON, the column is a character's; else it is that of the cell.
    """

    def __init__(self, line: int, column: int | None, sentence: str):
        place = f"Line {line}" if column is None else f"Line {line}, column {column}"
        super().__init__(f"{place}: {sentence}")
        self.line = line
        self.column = column


class Reading:
    """A file's records, one after the other, with the line at which each begins.

    ``columns`` are the names so far: of a CSV all of them once reading has begun, of JSON Lines those seen.

    If ``trimmed``, a CSV's rows of delimiters alone are no records at its end, where Excel writes them for emptied
    cells: ``left_out`` counts them, ``empty`` those before other rows, which are records without a value.
    """

    def __init__(self, chunks: Iterable[bytes], dialect: Dialect, *, trimmed: bool = False):
        self.columns: list[str] = []
        self.empty = 0
        self.left_out = 0
        self._trimmed = trimmed
        self._lines = decoded(chunks, dialect.encoding)
        self._dialect = dialect

    def __iter__(self) -> Iterator[tuple[int, Record]]:
        return self._csv() if self._dialect.format == "csv" else self._json()

    def _csv(self) -> Iterator[tuple[int, Record]]:
        dialect = self._dialect
        text: list[str] = []  # of the row; it may be asked what was quoted, or which cell is at fault
        above = _skipped(self._lines, dialect)
        reader = csv_reader(_kept(self._lines, text), dialect, strict=True)
        rows = _rows(reader, dialect, text, above)
        line, header = next(rows, (above + 1, []))
        text.clear()
        self.columns = _header(line, header, rows, text)
        width, null = len(self.columns), dialect.null
        blank = None
        waiting: list[int] = []  # lines of empty rows, which may be the last ones
        for line, cells in rows:
            if not cells and width > 1:
                blank = blank or line  # one at the end is nothing
                text.clear()
                continue
            if not cells:
                cells = [None]
            elif not dialect.quote:
                cells = [cell or None for cell in cells]
            if blank:
                raise FileFault(blank, 1, f"the line is empty, where a record has {width} cells; take it out.")
            if len(cells) != width:
                place = min(len(cells), width) + 1
                s = "" if len(cells) == 1 else "s"
                said = f"the record has {len(cells)} cell{s}, the header {width}."
                raise FileFault(
                    line, place, f"{said} Quote a cell that holds the delimiter, take out what is no record."
                )
            if self._trimmed and width > 1 and cells.count(None) == width:
                text.clear()
                waiting.append(line)
                continue
            self.empty += len(waiting)
            for empty in waiting:
                yield empty, dict.fromkeys(self.columns)
            waiting.clear()
            if null and null in cells:
                cells = _without_nulls(cells, dialect, "".join(text))
            text.clear()
            yield line, dict(zip(self.columns, cells, strict=True))
        self.left_out = len(waiting)

    def _json(self) -> Iterator[tuple[int, Record]]:
        known = set(self.columns)
        blank = None
        for line, text in enumerate(self._lines, 1):
            if not text.strip(_SPACE):
                blank = blank or line
                continue
            if blank:
                raise FileFault(blank, 1, "the line is empty, where an object is expected; take it out.")
            record = _members(line, text.rstrip("\r\n"))
            for name in record.keys() - known:
                if len(name) > LONGEST_HEADER:
                    raise FileFault(line, None, _TOO_LONG)
                known.add(name)
            if len(known) > len(self.columns):
                self.columns += [name for name in record if name not in set(self.columns)]
            yield line, record


def csv_reader(lines: Iterable[str], dialect: Dialect, *, strict: bool) -> Any:
    """Python's reader. With a quote an empty cell that isn't quoted is None, without one every cell is a text."""
    csv.field_size_limit(LONGEST_CELL)
    return csv.reader(
        lines,
        delimiter=dialect.delimiter,
        quotechar=dialect.quote or None,
        quoting=csv.QUOTE_NOTNULL if dialect.quote else csv.QUOTE_NONE,
        strict=strict,
    )


def _kept(lines: Iterable[str], text: list[str]) -> Iterator[str]:
    for line in lines:
        text.append(line)
        yield line


def _without_nulls(cells: list[Cell], dialect: Dialect, text: str) -> list[Cell]:
    """A row's cells, those that are the null text None; one that is quoted stays, as PostgreSQL's COPY has it.

    Python's reader doesn't tell them apart, but of a row that it took strictly each cell's length is known.
    """
    null, quote = dialect.null, dialect.quote
    if quote + null.replace(quote, quote * 2) + quote not in text:
        return [None if cell == null else cell for cell in cells]
    at, found = 0, []
    for cell in cells:
        quoted = text.startswith(quote, at)
        found.append(None if cell == null and not quoted else cell)
        at += 1 + len(cell or "") + (2 + (cell or "").count(quote) if quoted else 0)
    return found


def _skipped(lines: Iterator[str], dialect: Dialect) -> int:
    """Take the rows above the header, and say how many lines they are.

    Titles are written by hand: what follows a quote is forgiven ("Trees" of 2024), unless it makes a row of many lines.
    """
    text: list[str] = []
    reader = csv_reader(_kept(lines, text), dialect, strict=False)
    for line, _ in islice(_rows(reader, dialect, text), dialect.skip):
        if len(text) > 1:
            for _ in _rows(csv_reader(text, dialect, strict=True), dialect, text, line - 1):
                pass
        text.clear()
    return int(reader.line_num)


def _rows(reader: Any, dialect: Dialect, text: list[str], above: int = 0) -> Iterator[tuple[int, list[Cell]]]:
    """Each row with its first line, where so many stand above them; its ``text`` says which cell is at fault."""
    while True:
        line = above + reader.line_num + 1
        try:
            row = next(reader, None)
        except csv.Error as error:
            said = next((fault for text, fault in _CSV_FAULTS.items() if str(error).startswith(text)), str(error))
            raise FileFault(line, _faulty(dialect, "".join(text)), said) from None
        if row is None:
            return
        yield line, row


def _faulty(dialect: Dialect, text: str) -> int:
    """The column of the first cell that isn't whole, followed by a delimiter, and of a size that is taken."""
    quote, delimiter = re.escape(dialect.quote), re.escape(dialect.delimiter)
    bare = rf"[^{delimiter}\r\n]*+"
    cell = re.compile(rf"(?:{quote}(?:[^{quote}]|{quote}{quote})*+{quote}|(?!{quote}){bare})" if quote else bare)
    at, column = 0, 1
    while (found := cell.match(text, at)) and text.startswith(dialect.delimiter, found.end()):
        if found.end() - at > LONGEST_CELL:
            break
        at, column = found.end() + 1, column + 1
    return column


_CSV_FAULTS = {
    "unexpected end of data": "a quoted cell begins here and never ends.",
    "field larger than": "a cell is larger than 4 MiB; is a quote missing?",
    "new-line character": "a CR stands alone; save the file with lines that end with LF or CR LF.",
    "'": "something follows the quote that ends a cell; a quote within a cell is doubled.",
}


_TOO_LONG = f"a column's name has at most {LONGEST_HEADER:,} characters; is this the header?"


def _shown(name: str) -> str:
    """A name in a message, on one line."""
    return "'" + "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in name[:SHOWN]) + "'"


def _header(line: int, header: Sequence[Cell], rows: Iterator[tuple[int, list[Cell]]], text: list[str]) -> list[str]:
    if not header:
        raise FileFault(line, 1, "there is no header: the first row names the columns.")
    names: dict[str, int] = {}  # and where they stand
    for place, cell in enumerate(header, 1):
        name = (cell or "").strip()
        if not name:
            if not any((cell or "").strip() for cell in header[place:]) and _is_empty_from(place, rows, text):
                raise FileFault(
                    line,
                    place,
                    "the header is empty, and so is every cell beneath it: delete the empty column, for which each line"
                    " ends with a delimiter.",
                )
            raise FileFault(
                line, place, "the header is empty: each column needs a name, and a row of titles is one to skip."
            )
        if len(name) > LONGEST_HEADER:
            raise FileFault(line, place, _TOO_LONG)
        if name in names:
            raise FileFault(line, place, f"the header {_shown(name)} stands in column {names[name]} already.")
        names[name] = place
    return list(names)


def _is_empty_from(place: int, rows: Iterator[tuple[int, list[Cell]]], text: list[str]) -> bool:
    """Whether no row that is left has a filled cell from this column on; not where one can't be read."""
    try:
        for _, cells in rows:
            text.clear()
            if any((cell or "").strip() for cell in cells[place - 1 :]):
                return False
    except FileFault:
        return False
    return True


def array(text: str) -> Iterator[tuple[int, Record]]:
    """The objects of one JSON array with their numbers, which stand for the line in faults; read as JSON Lines are."""

    def blanks(at: int) -> int:
        found = _BLANKS.match(text, at)
        assert found is not None
        return found.end()

    number = 0
    at = blanks(0)
    if text[at : at + 1] != "[":
        raise FileFault(1, None, "expected '[': the body is one JSON array of objects.")
    at = blanks(at + 1)
    while text[at : at + 1] != "]":
        number += 1
        if number > 1:
            if text[at : at + 1] != ",":
                raise FileFault(number, None, "expected ',' or ']' before it.")
            at = blanks(at + 1)
        try:
            _, end = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError:
            raise FileFault(number, None, "it isn't JSON.") from None
        except (ValueError, RecursionError) as error:
            raise FileFault(number, None, _not_taken(error)) from None
        yield number, _members(number, text[at:end])
        at = blanks(end)
    if blanks(at + 1) != len(text):
        raise FileFault(number or 1, None, "something follows the array.")


_SPACE = " \t\r\n"
_BLANKS = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder(parse_constant=lambda name: _no_constant(name))


class _Constant(ValueError):
    """NaN, Infinity or -Infinity."""


def _no_constant(name: str) -> None:
    raise _Constant(name)


def _not_taken(error: ValueError | RecursionError) -> str:
    """What Python's decoder stumbles over, beside what isn't JSON."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply."
    if isinstance(error, _Constant):
        return "NaN and Infinity aren't JSON's; null is a missing value."
    most = sys.get_int_max_str_digits()
    return f"a number has more than {most} digits, which no column of numbers takes; quote it, for one of text."


def _members(line: int, text: str) -> dict[str, Cell]:
    """An object's members: a string's value, None for null, the text of anything else as it is written."""

    def blanks(at: int) -> int:
        found = _BLANKS.match(text, at)
        assert found is not None
        return found.end()

    def expect(what: str, at: int) -> int:
        if text[at : at + 1] != what:
            raise FileFault(line, at + 1, f"expected {what!r}: a line is one JSON object.")
        return blanks(at + 1)

    record: dict[str, Cell] = {}
    at = expect("{", blanks(0))
    while text[at : at + 1] != "}":
        if record:
            at = expect(",", at)
        begin = at
        try:
            if text[at : at + 1] != '"':
                raise json.JSONDecodeError("", text, at)
            name, at = scanstring(text, at + 1, True)
            at = expect(":", blanks(at))
            value, end = _DECODER.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise FileFault(line, error.pos + 1, "it isn't JSON.") from None
        except (ValueError, RecursionError) as error:
            raise FileFault(line, at + 1, _not_taken(error)) from None
        if not name or name in record:
            said = f"the name {_shown(name)} stands there twice." if name else "a name is empty."
            raise FileFault(line, begin + 1, said)
        cell = value if isinstance(value, str) else None if value is None else Raw(text[at:end])
        for part in (name, cell):
            if part and ("\0" in part or _LONE.search(part)):
                raise FileFault(line, begin + 1, "a NUL or half of a character, which PostgreSQL can't hold.")
        record[name] = cell
        at = blanks(end)
    if (end := blanks(at + 1)) != len(text):
        raise FileFault(line, end + 1, "something follows the object: a line is one JSON object.")
    return record


_LONE = re.compile("[\ud800-\udfff]")


def decoded(chunks: Iterable[bytes], encoding: str) -> Iterator[str]:
    """The lines of a file, each with its end. A line ends with LF; a CR before it belongs to that end."""
    pieces = _pieces(chunks)
    start = next(pieces, b"")
    codec = ENCODINGS[encoding]
    for beginning, what in BINARIES.items():
        if start.startswith(beginning):
            raise FileFault(1, 1, _ANOTHER_KIND.format(what))
    for mark, marked in MARKS.items():
        if not start.startswith(mark):
            continue
        if codec not in ("", marked):
            raise FileFault(1, 1, f"it begins with the byte order mark of {marked}, which {encoding} isn't.")
        codec, start = marked, start[len(mark) :]
    if not codec:
        raise FileFault(1, 1, "it doesn't begin with UTF-16's byte order mark; declare utf-16-le or utf-16-be.")
    decoder = codecs.getincrementaldecoder(codec)()
    number, rest, begun = 0, "", False
    for piece, final in chain(((piece, False) for piece in chain([start], pieces)), [(b"", True)]):
        try:
            text = rest + decoder.decode(piece, final)
        except UnicodeDecodeError as error:
            seen = rest + error.object[: error.start].decode(codec)
            line, column = number + seen.count("\n") + 1, len(seen) - seen.rfind("\n")
            byte = error.object[error.start]
            raise FileFault(line, column, f"the byte 0x{byte:02X} can't be decoded as {encoding}.") from None
        if not begun:
            text = text.lstrip("\ufeff")  # two programs that each write a mark make two of them
            begun = text != ""
            if _PAGE.match(text):
                raise FileFault(1, 1, _ANOTHER_KIND.format("an HTML page"))
        if "\0" in text:
            seen = text[: text.index("\0")]
            line, column = number + seen.count("\n") + 1, len(seen) - seen.rfind("\n")
            raise FileFault(line, column, "a NUL, which PostgreSQL's text can't hold; is this the file's encoding?")
        *lines, rest = text.split("\n")
        for line_text in lines:
            number += 1
            yield line_text + "\n"
        if len(rest) > LONGEST_LINE:
            raise FileFault(
                number + 1, None, "the line is longer than 16 MiB; is this the file's encoding, and LF its lines' end?"
            )
    if rest:
        yield rest


_ANOTHER_KIND = "it is {}, whatever it is called: save it as CSV UTF-8, and upload that."
_PAGE = re.compile(r"\s*<(?:!doctype\s+html|html)[\s>]", re.IGNORECASE)


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Small pieces, so that memory is flat; the first one holds a whole byte order mark, and how a page begins."""
    start = b""
    for chunk in chunks:
        if len(start) < 100:
            start += chunk
            continue
        for at in range(0, len(start), PIECE):
            yield start[at : at + PIECE]
        start = chunk
    for at in range(0, len(start), PIECE):
        yield start[at : at + PIECE]


# What a cell is to PostgreSQL


def takes(found: str, declared: str) -> bool:
    """Whether a column that was found to be of a type may be declared as another one: any may be text."""
    return declared in (found, "text") or (found, declared) == ("integer", "decimal")


def converter(type_: str, dialect: Dialect) -> Callable[[str], str]:
    """What makes of a cell what PostgreSQL reads as a value of the declared type."""
    if dialect.format == "jsonl":
        return _as_json if type_ == "json" else str
    if type_ == "decimal" and dialect.decimal != ".":
        return lambda cell: cell.replace(dialect.decimal, ".")
    if type_ == "date" and dialect.date != "YYYY-MM-DD":
        at = {part: slice(dialect.date.index(part), dialect.date.index(part) + len(part)) for part in DATE_PARTS}
        return lambda cell: f"{cell[at['YYYY']]}-{cell[at['MM']]}-{cell[at['DD']]}"
    return str


DATE_PARTS = ("YYYY", "MM", "DD")

COLUMN_TYPES = {
    "text": "text",
    "integer": "int8",
    "decimal": "numeric",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "json": "json",
}
"""The types a file's column is found to be of, and PostgreSQL's names for them."""


def _as_json(cell: str) -> str:
    return cell if isinstance(cell, Raw) else json.dumps(cell, ensure_ascii=False)
