"""The four forms of a date that DCAT-AP knows, by their letters.

Libraries are lenient here (rdflib takes the year ``16`` and the month ``2004-4``), portals aren't.
"""

import re
from datetime import date

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
