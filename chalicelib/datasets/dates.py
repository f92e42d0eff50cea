"""The four forms of a date that DCAT-AP knows, by their letters.

Libraries are lenient here (rdflib takes the year ``16`` and the month ``2004-4``), portals aren't.
"""

import re
from datetime import date, datetime
from decimal import Decimal

_YEAR = r"-?(?:[1-9]\d{3,}|0\d{3})"
_MONTH = rf"{_YEAR}-(?:0[1-9]|1[0-2])"
_DATE = rf"{_MONTH}-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?"  # 24:00:00 is legal in XSD; many readers stumble over it
_ZONE = r"(?:Z|[+-](?:(?:0\d|1[0-3]):[0-5]\d|14:00))?"
_FORMS = {
    "gYear": re.compile(_YEAR + _ZONE),
    "gYearMonth": re.compile(_MONTH + _ZONE),
    "date": re.compile(_DATE + _ZONE),
    "dateTime": re.compile(f"{_DATE}T{_TIME}{_ZONE}"),
}


_ENDS_IN_ZONE = re.compile(r"(?:Z|[+-]\d\d:\d\d)$")


def is_written_as(datatype: str, text: str) -> bool:
    """Whether the text is a gYear, gYearMonth, date or dateTime, letter by letter and in the calendar."""
    if not text.isascii() or not _FORMS[datatype].fullmatch(text):
        return False
    if datatype in {"gYear", "gYearMonth"} or text.startswith("-"):
        return True
    try:
        date.fromisoformat(text[:10])
    except ValueError:
        return False
    return True


def datatype_of(text: str) -> str:
    """Which of the four forms the text has; ValueError when none."""
    for datatype in _FORMS:
        if is_written_as(datatype, text):
            return datatype
    raise ValueError("must be a date like 2024, 2024-04, 2024-04-30 or 2024-04-30T12:00:00Z")


def is_before(one: str, other: str) -> bool:
    """Whether one date certainly is before the other, as far as both of them say it: 2013-05 isn't before 2013-05-31.

    Both have one of the four forms. A zone that isn't said is the other's; across two zones only instants of the years
    1 to 9999 are compared.
    """
    (ones, zone), (others, other_zone) = _parts(one), _parts(other)
    if zone == other_zone or not zone or not other_zone:
        said = min(len(ones), len(others))
        return ones[:said] < others[:said]
    if not datatype_of(one) == datatype_of(other) == "dateTime":
        return False
    try:
        return datetime.fromisoformat(one) < datetime.fromisoformat(other)
    except ValueError:
        return False


def _parts(text: str) -> tuple[list[Decimal], str]:
    """Year, month, day, hour, minute and second, as far as they are said, and the zone or nothing."""
    found = _ENDS_IN_ZONE.search(text)
    zone = found.group() if found else ""
    said = text.removesuffix(zone)
    sign = "-" if said.startswith("-") else ""
    year, *others = re.split("[-T:]", said.removeprefix("-"))
    return [Decimal(part) for part in (sign + year, *others)], zone
