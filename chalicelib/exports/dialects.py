"""What a file's dialect is, and of which types its columns are: found by reading all of it, before it is registered.

Needed where a file is uploaded, never where one is exported: that goes by what was found here.
"""

import codecs
import csv
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from .files import DATE_PARTS, LONGEST_LINE, MARKS, PIECE, Dialect, FileFault, Raw, Reading, csv_reader, decoded

SAMPLE = 1024 * 1024
"""Characters by which delimiter, quote and rows to skip are found."""

DELIMITERS = (";", ",", "\t", "|")
DATES = ("YYYY-MM-DD", "DD.MM.YYYY", "DD/MM/YYYY", "MM/DD/YYYY", "YYYY/MM/DD", "DD-MM-YYYY")


class Undecided(Exception):
    """The file's dialect can't be found; the message names the option that declares it."""


@dataclass(frozen=True)
class FoundColumn:
    """A column: its name, the type that every cell of it comes back as, and how many cells are null."""

    name: str
    type: str
    nulls: int


@dataclass(frozen=True)
class Seen:
    """A file that was read from its first byte to its last."""

    dialect: Dialect
    columns: list[FoundColumn]
    records: int
    bytes: int
    sha256: str
    empty: int
    """Records of a CSV without a filled cell; ``left_out`` are such rows at the end, which are no records."""
    left_out: int
    look_like: dict[str, str]
    """Columns of text in a CSV whose every cell is a number as people write it, and what it is written with."""


def look(path: Path, declared: Mapping[str, Any]) -> Seen:
    """Read a file by what is declared of its dialect, and find the rest; FileFault or Undecided."""
    size, digest = _measured(path)
    dialect = replace(Dialect(), **declared)
    if "format" not in declared and path.suffix.lower() in (".jsonl", ".ndjson"):
        dialect = replace(dialect, format="jsonl")
    if "encoding" not in declared:
        dialect = replace(dialect, encoding=_encoding(path))
    elif dialect.encoding.startswith(("windows-", "iso-8859-")) and _is_utf_8(path):
        # Whoever declared it for last month's file would publish Ã¼ for ü.
        raise Undecided(f"It is UTF-8, not {dialect.encoding} as declared: declare it with --encoding utf-8.")
    if dialect.format == "csv":
        dialect = _laid_out(path, dialect, declared)
    reading = Reading(chunks(path), dialect, trimmed=True)
    guesses: dict[str, _Guess] = {}
    records = 0
    for _, record in reading:
        records += 1
        for name, cell in record.items():
            if cell is not None:
                guess = guesses.get(name)
                if guess is None:
                    guess = guesses[name] = _Guess(dialect, declared)
                guess.see(cell)
    found = [guesses.get(name) or _Guess(dialect, declared) for name in reading.columns]
    dialect = _settled(dialect, declared, found)
    columns = [
        FoundColumn(name, guess.type(dialect), records - guess.seen)
        for name, guess in zip(reading.columns, found, strict=True)
    ]
    if not columns:
        raise FileFault(1, None, "the file has no record.")
    look_like = {
        column.name: guess.looks_like
        for column, guess in zip(columns, found, strict=True)
        if column.type == "text" and guess.looks_like
    }
    return Seen(dialect, columns, records, size, digest, reading.empty, reading.left_out, look_like)


def chunks(path: Path) -> Iterator[bytes]:
    """A file's bytes."""
    with path.open("rb") as file:
        while chunk := file.read(PIECE):
            yield chunk


def _measured(path: Path) -> tuple[int, str]:
    size, digest = 0, hashlib.sha256()
    for chunk in chunks(path):
        size += len(chunk)
        digest.update(chunk)
    return size, digest.hexdigest()


# The encoding


def _encoding(path: Path) -> str:
    """UTF-16 by mark, zeros or ends of lines, UTF-8 if most of what isn't ASCII is, else one of a byte a character.

    A file of UTF-8 with a broken byte stays UTF-8, so that the byte is named and not read as something else.
    """
    with path.open("rb") as file:
        head = file.read(SAMPLE)
    for mark, marked in MARKS.items():
        if head.startswith(mark):
            return "utf-8" if marked == "utf-8" else "utf-16"
    for name, zeros in (("utf-16-le", head[1::2]), ("utf-16-be", head[0::2])):
        # Cyrillic has no zeros but at the ends of its lines.
        ends = head[: len(head) // 2 * 2].decode(name, "replace").count("\n")
        if zeros.count(0) * 2 > len(zeros) or ends * 2 > head.count(b"\n"):
            return name
    good = broken = 0
    high: list[bytes] = []
    with path.open("rb") as file:
        while line := file.readline(LONGEST_LINE):
            if not line.isascii():
                text = line.decode("utf-8", "surrogateescape")
                bad = len(_ESCAPED.findall(text))
                broken += bad
                good += len(_BEYOND_ASCII.findall(text)) - bad
                if bad and len(high) < 2000:
                    high.append(line)
    return "utf-8" if good >= broken else _one_byte(b"".join(high))


def _is_utf_8(path: Path) -> bool:
    """Whether a file has characters beyond ASCII, and all of them are UTF-8's: no other text is, but by design."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    try:
        beyond = [not decoder.decode(chunk).isascii() for chunk in chunks(path)]
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return any(beyond)


_ESCAPED = re.compile("[\udc80-\udcff]")
_BEYOND_ASCII = re.compile("[^\0-\x7f]")
_C1 = re.compile(b"[\x80-\x9f]")


def _one_byte(sample: bytes) -> str:
    """Windows-1252, unless its characters make no sense and a part of ISO 8859 makes words of them: a few never do.

    By rules of our own. Of programs' messages in eight languages of ISO 8859-2 they know 97 in 100 samples of thirty
    lines, and take none of 2,500 from the West for one; charset-normalizer knew the Polish ones alone, and took
    ``20°C`` for Cyrillic. Turkish must be declared. ISO 8859 has no letters from 0x80 to 0x9F.
    """
    if _C1.search(sample):
        return "windows-1252"
    return _another_script(sample) or ("iso-8859-2" if _is_central_european(sample) else "windows-1252")


_VOWELS = {"iso-8859-5": "аеиоуыэюяєіїё", "iso-8859-7": "αεηιουωάέήίόύώϊϋΐΰ"}
_SPELT = re.compile("[Α-ΫЀ-Я]+|[Ά-ώ][ά-ώ]+|[Ѐ-џ][а-џ]+")
_FOREIGN = re.compile(b"(?<![A-Za-z])[\xa1-\xff]{4,}(?![A-Za-z])")
"""A word of nothing but high bytes, which no language of the West has."""


def _another_script(sample: bytes) -> str | None:
    """The part of ISO 8859 by which most high bytes are words as they are spelt: some of their letters are vowels."""
    high = len(sample) - len(sample.translate(None, bytes(range(0xA1, 0x100))))
    found = []
    for part, vowels in _VOWELS.items():
        words = (word.decode(part, "replace") for word in _FOREIGN.findall(sample))
        spelt = (word for word in words if word.isalpha() and _SPELT.fullmatch(word))
        letters = "".join(spelt).lower()
        found.append((sum(letter in vowels for letter in letters), letters, part))
    spoken, letters, part = max(found)
    if not 0.3 * len(letters) <= spoken <= 0.6 * len(letters) or len(letters) * 2 < high:
        return None
    return part if 5 <= len(set(letters)) < len(letters) else None  # a list of accents has each once


def _is_central_european(sample: bytes) -> bool:
    """Whether lines make sense as ISO 8859-2 alone: one in ten, and more than there are with signs that stand alone."""
    lines = [line.decode("latin-1") for line in sample.split(b"\n") if not line.isascii()]
    sense = sum(
        1
        for line in lines
        if _CENTRAL.search(line) or any(one.search(line) and other.search(line) for one, other in _NOT_TOGETHER)
    )
    return sense * 10 >= len(lines) and sense > sum(1 for line in lines if _ALONE.search(line))


# As windows-1252 has them. What a footnote, a unit or a database that has lost a letter puts beside a word counts for
# nothing: Wert¹, Nm³, Nº, Stra¿e.
_LETTER, _SMALL = "[A-Za-zÀ-ÿ]", "[a-zß-ÿ]"
_ALONE = re.compile("(?<![A-Za-z¡-ÿ])[¡-£¥¦©-¬®¯±-³µ-·¹-¿](?![A-Za-z¡-ÿ])")
_CENTRAL = re.compile(
    f"(?<!{_LETTER})[£¥¦©ª¬®¯]{_SMALL}{{2}}"  # Łódź, Śląsk, Škofja
    f"|{_LETTER}{{2}}[±³µ¶¹º¼¾]{_SMALL}|{_LETTER}[±³µ¶¹¼¾]{_SMALL}{{2}}"  # Wisła, Košice
    f"|{_SMALL}{{2}}[³¶¹]?[±¶¼¾](?!{_LETTER})"  # drogą, muž
)
_NOT_TOGETHER = [
    (re.compile(one, re.IGNORECASE), re.compile(other, re.IGNORECASE))
    for one, other in (
        ("õ(?![es])", "[áéíóú]"),  # erdőség, but neither corações nor põhi
        ("ì", "[áíýø]"),  # náměstí
        ("ø", "ù"),  # průměr
        ("þ", "[ãâ]"),  # ţară şi câmpie, but neither það nor pão
    )
]


# Delimiter, quote, rows to skip


def _laid_out(path: Path, dialect: Dialect, declared: Mapping[str, Any]) -> Dialect:
    """The layout that the first rows show: rows as CSV has them, for a quoted line break ends none."""
    lines, size = [], 0
    for line in decoded(chunks(path), dialect.encoding):
        lines.append(line)
        size += len(line)
        if size > SAMPLE:
            break
    excel = _EXCELS.fullmatch(lines[0]) if lines else None
    if excel and "delimiter" not in declared:
        dialect, declared = replace(dialect, delimiter=excel[1]), {**declared, "delimiter": excel[1]}
    if "delimiter" in declared and dialect.delimiter == dialect.quote:
        raise Undecided("Its delimiter and its quote can't be the same: declare another --delimiter or --quote.")
    if "quote" not in declared and _single_quoted(lines, dialect, declared):
        dialect = replace(dialect, quote="'")
    if "delimiter" not in declared:
        dialect = replace(dialect, delimiter=_delimiter(lines, dialect))
    if "skip" not in declared:
        rows = _rows(lines, dialect)
        dialect = replace(dialect, skip=_rows_above_the_header(rows, 1 if excel else 0))
        if dialect.skip and "delimiter" not in declared and _may_be_a_single_column(rows, dialect):
            raise Undecided(
                f"It may be titles above columns, or a single column with {dialect.delimiter!r} in it: declare"
                f" --skip {dialect.skip}, or else another --delimiter."
            )
    return dialect


_EXCELS = re.compile(r'"?sep=([^\r\n"])"?[;,\t]*\r?\n?', re.IGNORECASE)
"""A first line by which Excel is told the delimiter."""

_NUMBER = re.compile(r"\s*[-+]?[0-9][0-9.']*\s*")


def _may_be_a_single_column(rows: list[list[str | None]], dialect: Dialect) -> bool:
    """Whether the titles may be a header and what follows its values: nothing tells for sure, so who knows is asked."""
    titles, (header, *records) = rows[: dialect.skip], rows[dialect.skip :]
    a_word = dialect.delimiter == "," and len(titles) == 1 and titles[0] and " " not in str(titles[0][0])
    a_number = all(cell and _NUMBER.fullmatch(cell) for cell in header)  # 1,5
    prose = all(cell and cell.startswith(" ") for row in (header, *records) for cell in row[1:])  # Doe, Jane
    return bool(a_word or a_number or prose or not any(records))


def _single_quoted(lines: list[str], dialect: Dialect, declared: Mapping[str, Any]) -> bool:
    """Whether no cell is quoted with ", as many as there are rows are with ', and every row can be read so."""
    text = "".join(lines)
    begins = len(re.findall(r"(?:^|[;,\t|])'", text, re.MULTILINE))
    if not begins or '"' in text:
        return False
    dialect = replace(dialect, quote="'")
    if "delimiter" not in declared:
        dialect = replace(dialect, delimiter=_delimiter(lines, dialect))
    if dialect.delimiter == "'":
        return False
    strict = len(_rows(lines, dialect, strict=True))
    return begins >= strict > 0 and strict >= len(_rows(lines, dialect)) - 1  # the last one may be cut


def _rows(lines: list[str], dialect: Dialect, *, strict: bool = False) -> list[list[str | None]]:
    """The rows of these lines, up to one that can't be read."""
    rows = []
    with suppress(csv.Error):
        for row in csv_reader(lines, dialect, strict=strict):
            rows.append(row)
    return rows


def _delimiter(lines: list[str], dialect: Dialect) -> str:
    """The one that gives most rows the same number of cells, and more than one."""
    scores: dict[str, tuple[float, int]] = {}
    for delimiter in DELIMITERS:
        if delimiter == dialect.quote:
            continue
        rows = _rows(lines, replace(dialect, delimiter=delimiter))[dialect.skip :]
        widths = Counter(len(row) for row in rows if row)
        width, number = _usual(widths)
        if width > 1:
            scores[delimiter] = (number / widths.total(), width)
    if not scores:
        return Dialect.delimiter if dialect.quote != Dialect.delimiter else ";"  # a single column
    ranked = sorted(scores, key=lambda delimiter: scores[delimiter], reverse=True)
    if len(ranked) > 1 and scores[ranked[0]] == scores[ranked[1]]:
        named = " and ".join(repr(delimiter) for delimiter in ranked[:2])
        raise Undecided(f"Its delimiter may be {named}: declare it with --delimiter.")
    return ranked[0]


def _usual(widths: Counter[int]) -> tuple[int, int]:
    """How many cells most rows have, and how many rows that are: of two widths the larger, for titles have one cell."""
    return max(widths.items(), key=lambda item: (item[1], item[0]), default=(1, 0))


def _rows_above_the_header(rows: list[list[str | None]], known: int) -> int:
    """Titles: rows of another width, without a filled cell, or with one among three or more; ``known`` are some."""
    widths = Counter(len(row) for row in rows if row)
    width, _ = _usual(widths)
    if width == 1:
        return known
    for above, row in enumerate(rows[known:50], known):
        filled = sum(1 for cell in row if cell and cell.strip())
        if len(row) == width and filled and (filled != 1 or width < 3):
            return above
        if filled > 1:
            break  # neither a title nor the header: the reading will say what is wrong with it
    return known


# The types of columns: one is taken only if every cell comes back letter by letter


_INTEGER = re.compile(r"(?!-0$)-?(?:0|[1-9][0-9]{0,18})")


def _integer(cell: str) -> bool:
    return _INTEGER.fullmatch(cell) is not None and -(2**63) <= int(cell) < 2**63


def _boolean(cell: str) -> bool:
    return cell in ("true", "false")


def _decimal(mark: str) -> Callable[[str], bool]:
    pattern = re.compile(
        rf"(?!-0(?:{re.escape(mark)}0*)?$)-?(?:0|[1-9][0-9]{{0,999}})(?:{re.escape(mark)}[0-9]{{1,999}})?"
    )
    return lambda cell: pattern.fullmatch(cell) is not None


def _date(pattern: str) -> Callable[[str], bool]:
    expression = re.escape(pattern)
    for part in DATE_PARTS:
        expression = expression.replace(part, rf"(?P<{part}>[0-9]{{{len(part)}}})")
    compiled = re.compile(expression)

    @lru_cache(4096)  # most files have few days
    def matches(cell: str) -> bool:
        found = compiled.fullmatch(cell)
        return found is not None and _exists(*(int(found[part]) for part in DATE_PARTS))

    return matches


def _exists(year: int, month: int, day: int) -> bool:
    try:
        date(year, month, day)
    except ValueError:
        return False
    return True


_TIME = re.compile(r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]")


def _timestamp(separator: str) -> Callable[[str], bool]:
    day = _date("YYYY-MM-DD")
    return lambda cell: (
        cell[10:11] == separator and day(cell[:10]) and _TIME.fullmatch(cell, 11) is not None and cell.isascii()
    )


_THOUSANDS = re.compile(r"-?[1-9][0-9]{0,2}[.,][0-9]{3}")
"""Whether it is a number with three decimals or a thousand of something can't be told."""

_WRITTEN = re.compile(
    r"\s*[-+]?\s?"
    r"(?:(?P<thousands>[1-9][0-9]{0,2}(?P<mark>[.,'’ \xa0\u202f])[0-9]{3}(?:(?P=mark)[0-9]{3})*)|0|[1-9][0-9]*)"
    r"(?:(?!(?P=mark))[.,][0-9]+)?(?P<percent>\s?%)?(?P<minus>-)?\s*"
)
_WRITTEN_WITH = {"thousands": "thousands separators", "percent": "a percent sign", "minus": "a minus behind"}
"""Numbers as people write them, that PostgreSQL doesn't take."""


class _Guess:
    """What a column may still be, cell by cell."""

    def __init__(self, dialect: Dialect, declared: Mapping[str, Any]):
        self.seen = 0
        self.raw = 0
        self._all_thousands = True
        self._all_written = dialect.format == "csv"  # in JSON a string is a string
        self.looks_like = ""
        self._declared = declared
        if dialect.format == "jsonl":
            marks, dates = [], ["YYYY-MM-DD"]
        else:
            marks = [declared["decimal"]] if "decimal" in declared else [".", ","]
            dates = [declared["date"]] if "date" in declared else list(DATES)
        self._may = {
            **({} if dialect.format == "jsonl" else {("integer", ""): _integer, ("boolean", ""): _boolean}),
            **{("decimal", mark): _decimal(mark) for mark in marks},
            **{("date", pattern): _date(pattern) for pattern in dates},
            **{("timestamp", separator): _timestamp(separator) for separator in "T "},
        }
        self._raw_may = {("integer", ""): _integer, ("decimal", "."): _decimal("."), ("boolean", ""): _boolean}

    def see(self, cell: str) -> None:
        """Take the next cell that isn't null."""
        self.seen += 1
        if isinstance(cell, Raw):
            self.raw += 1
            self._raw_may = _left(self._raw_may, cell, self.raw)
            return
        if self._may:
            self._may = _left(self._may, cell, self.seen)
            if self._all_thousands and not _integer(cell):
                self._all_thousands = _THOUSANDS.fullmatch(cell) is not None
        if self._all_written and not self._may_be_number():
            self._see_how_written(cell)

    def _may_be_number(self) -> bool:
        return ("integer", "") in self._may or (
            not self._all_thousands and (("decimal", ".") in self._may or ("decimal", ",") in self._may)
        )

    def _see_how_written(self, cell: str) -> None:
        found = _WRITTEN.fullmatch(cell)
        if found is None:
            self._all_written, self.looks_like = False, ""
        elif not self.looks_like:
            parts = (with_ for part, with_ in _WRITTEN_WITH.items() if found[part])
            self.looks_like = next((f"numbers with {with_} ({cell.strip()[:40]})" for with_ in parts), "")

    def may(self, type_: str) -> list[str]:
        """The variants of a type (a decimal mark, a date format) that every cell fits."""
        if not self.seen or self.raw or (("integer", "") in self._may and type_ not in self._declared):
            return []
        if type_ == "decimal" and self._all_thousands and "decimal" not in self._declared:
            return []
        return [variant for found, variant in self._may if found == type_]

    def type(self, dialect: Dialect) -> str:
        """The type that every cell comes back as, by the dialect as it was settled; text otherwise."""
        if not self.seen:
            return "text"
        if self.raw:
            return next((found for found, _ in self._raw_may), "json") if self.raw == self.seen else "json"
        if "date" in self._declared and dialect.date in self.may("date"):
            return "date"  # although it may look like a number
        if ("integer", "") in self._may:
            return "integer"
        if dialect.decimal in self.may("decimal"):
            return "decimal"
        if dialect.date in self.may("date"):
            return "date"
        return next((found for found, _ in self._may if found in ("boolean", "timestamp")), "text")


_May = dict[tuple[str, str], Callable[[str], bool]]


def _left(may: _May, cell: str, seen: int) -> _May:
    # What is an integer is a decimal number, too: asked once, as long as all of them are.
    if seen > 1 and ("integer", "") in may and _integer(cell):
        return {key: fits for key, fits in may.items() if key[0] != "date" or fits(cell)}
    return {key: fits for key, fits in may.items() if fits(cell)}


def _settled(dialect: Dialect, declared: Mapping[str, Any], columns: Iterable[_Guess]) -> Dialect:
    """One decimal mark and one date format for the file: what most columns can only have; none if that is undecided."""
    if dialect.format == "jsonl":
        return dialect
    columns = list(columns)

    def most(type_: str, default: str, undecided: str) -> str:
        variants = [some for column in columns if (some := column.may(type_))]
        deciding = Counter(some[0] for some in variants if len(some) == 1).most_common(2)
        if len(deciding) == 2 and deciding[0][1] == deciding[1][1]:
            return ""
        return deciding[0][0] if deciding else undecided if variants else default

    return replace(
        dialect,
        decimal=dialect.decimal if "decimal" in declared else most("decimal", dialect.decimal, dialect.decimal),
        date=dialect.date if "date" in declared else most("date", dialect.date, ""),
    )
