"""When a schedule is due: arithmetic on wall clocks, from the scheduled time, never from the time of a run."""

from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import Literal
from zoneinfo import ZoneInfo, available_timezones

Every = Literal["day", "week", "month"]
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


@dataclass(frozen=True)
class Cadence:
    """Every day, week or month at a local time: `on` is a weekday's name for weeks, 1-31 for months.

    A time that doesn't exist runs at the first instant after the gap, one that exists twice at the first, and a day
    that the month lacks is its last day.
    """

    every: Every
    at: str  # "02:00"
    zone: str
    on: str | int | None = None

    def __post_init__(self) -> None:
        for field, fault in self._faults():
            raise InvalidCadence(field, fault)

    def _faults(self) -> list[tuple[str, str]]:
        faults = []
        if self.every not in ("day", "week", "month"):
            faults.append(("every", "It takes day, week or month."))
        if not _is_time(self.at):
            faults.append(("at", "It takes a local time such as 02:00."))
        if not isinstance(self.zone, str) or self.zone not in _zones():
            faults.append(("zone", "It takes a zone of the IANA list such as Europe/Berlin."))
        if self.every == "day" and self.on is not None:
            faults.append(("on", "A daily schedule takes none."))
        if self.every == "week" and self.on not in WEEKDAYS:
            faults.append(("on", f"A weekly schedule takes one of {', '.join(WEEKDAYS)}."))
        if self.every == "month" and not (type(self.on) is int and 1 <= self.on <= 31):
            faults.append(("on", "A monthly schedule takes a day from 1 to 31."))
        return faults

    def next_after(self, instant: datetime) -> datetime:
        """The first slot after the instant (aware), in UTC."""
        zone = ZoneInfo(self.zone)
        # One day back: a slot moved by a gap at midnight may belong to the day before.
        day = instant.astimezone(zone).date() - timedelta(days=1)
        while True:
            if self._falls_on(day):
                slot = _instant(day, time.fromisoformat(self.at), zone)
                if slot > instant:
                    return slot
            day += timedelta(days=1)

    def _falls_on(self, day: date) -> bool:
        if self.every == "day":
            return True
        if self.every == "week":
            return WEEKDAYS[day.weekday()] == self.on
        assert isinstance(self.on, int)
        return day.day == min(self.on, monthrange(day.year, day.month)[1])


class InvalidCadence(ValueError):
    """A schedule's cadence isn't one: the field, and what it takes."""

    def __init__(self, field: str, detail: str):
        super().__init__(f"{field}: {detail}")
        self.field = field
        self.detail = detail


@cache
def _zones() -> frozenset[str]:
    # What a machine calls its own zone is another one on the next machine, or none.
    return frozenset(available_timezones()) - {"Factory", "localtime", "posixrules"}


def _is_time(text: str) -> bool:
    try:
        return time.fromisoformat(text).strftime("%H:%M") == text
    except (TypeError, ValueError):
        return False


def _instant(day: date, at: time, zone: ZoneInfo) -> datetime:
    """The instant of a wall time: the first of two, or the first after the gap it falls into."""
    wall = datetime.combine(day, at, zone)  # fold=0: the first of two
    instant = wall.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall.replace(tzinfo=None):
        return instant
    # In a gap, fold=0 counts with the offset before it and lands after the gap by as much as the wall time lay inside;
    # the gap's end is the first instant with the offset after it: between the two, by halving.
    before, after = wall.replace(fold=1).astimezone(UTC), instant
    offset = after.astimezone(zone).utcoffset()
    while after - before > timedelta(seconds=1):
        middle = before + (after - before) / 2
        if middle.astimezone(zone).utcoffset() == offset:
            after = middle
        else:
            before = middle
    return after.replace(microsecond=0)
