"""Schedules against an oracle that does no arithmetic of zones: it walks through ten years, looking at the wall clock.

The rule, in one sentence: a slot is the first instant at which the wall clock has come as far as its wall time, or
farther. That is the time itself, its first one where it exists twice, and the end of the gap where it doesn't exist.
"""

import os
import random
from bisect import bisect_left
from calendar import monthrange
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from chalicelib.engine.cadence import WEEKDAYS, Cadence
from tests import toy
from tests.proof.conftest import LONG

STRIDE = timedelta(minutes=15)  # every zone changes its clock on a quarter of an hour
YEARS = 10

ZONES = {
    "Europe/Berlin": 2020,
    "America/New_York": 2020,
    "Australia/Lord_Howe": 2020,  # summer time is half an hour
    "Africa/Casablanca": 2020,  # summer time all year but for Ramadan, so that two years have two gaps
    "Pacific/Apia": 2006,  # without 30 December 2011
    "America/Sao_Paulo": 2010,  # gaps at midnight, until 2019
    "America/Santiago": 2018,  # gaps at midnight, days that change by decree
    "Asia/Kathmandu": 2020,  # 5:45 ahead, no summer time
    "Asia/Tehran": 2015,  # 3:30 ahead, gaps at midnight, until 2022
    "Africa/Cairo": 2018,  # none, and again from 2023; its day is a Friday, at midnight
    "America/Caracas": 2008,  # half an hour, given back in 2016
    "Antarctica/Troll": 2020,  # two hours
}
"""Each zone with the first of its ten years."""

TIMES = ("00:00", "00:30", "01:45", "02:00", "02:15", "02:30", "03:00", "12:00", "23:59")
CADENCES = [
    {"every": every, "on": on, "at": at}
    for at in TIMES
    for every, on in [
        ("day", None),
        *(("week", day) for day in WEEKDAYS),
        *(("month", day) for day in (1, 15, 28, 29, 30, 31)),
    ]
]
SAMPLE = 3
"""How many cadences of each zone the short run looks at."""

SEED = int(os.environ.get("PROVE_SEED") or random.SystemRandom().randrange(10**6))


class Wall:
    """The clock on a wall: how far it had come, at every quarter of an hour of ten years."""

    def __init__(self, zone: str):
        self.begin = datetime(ZONES[zone], 1, 1, tzinfo=UTC)
        self.end = datetime(ZONES[zone] + YEARS, 1, 1, tzinfo=UTC)
        self.edges: list[datetime] = []  # when it was changed
        self._at: list[datetime] = []
        self._farthest: list[datetime] = []
        at, farthest, before, wall = self.begin - timedelta(days=3), datetime.min, None, ZoneInfo(zone)
        while at < self.end + timedelta(days=3):
            seen = at.astimezone(wall).replace(tzinfo=None)
            if before is not None and seen - before != STRIDE:
                self.edges.append(at)
            if seen > farthest:
                self._at.append(at)
                self._farthest.append(seen)
                farthest = seen
            at, before = at + STRIDE, seen

    def reaches(self, wanted: datetime) -> datetime:
        """The first instant at which it has come as far as this, walked minute by minute from the quarter before."""
        found = bisect_left(self._farthest, wanted)
        if self._farthest[found] == wanted:
            return self._at[found]
        # Between two quarters the clock just runs; over a gap it is there at once.
        at, seen = self._at[found - 1], self._farthest[found - 1]
        while seen < wanted and at < self._at[found]:
            at, seen = at + timedelta(minutes=1), seen + timedelta(minutes=1)
        return at if seen == wanted and at < self._at[found] else self._at[found]


wall = cache(Wall)


def has(cadence: Cadence, day: date) -> bool:
    """Whether the calendar has the cadence on this day."""
    last = monthrange(day.year, day.month)[1]
    if cadence.every == "month":
        return day.day == cadence.on or (day.day == last and int(cadence.on) > last)
    return cadence.every == "day" or f"{day:%A}".lower() == cadence.on


def slots(cadence: Cadence) -> list[datetime]:
    """All slots of the ten years, and one before and after."""
    clock, at = wall(cadence.zone), time.fromisoformat(cadence.at)
    days = [(clock.begin + timedelta(days=n)).date() for n in range(-2, (clock.end - clock.begin).days + 2)]
    return sorted({clock.reaches(datetime.combine(day, at)) for day in days if has(cadence, day)})


def drawn(zone: str) -> list[Cadence]:
    """The cadences of a zone that this run looks at."""
    of = [Cadence(zone=zone, **cadence) for cadence in CADENCES]
    return of if LONG else random.Random(f"{SEED} {zone}").sample(of, SAMPLE)


@pytest.mark.parametrize("zone", ZONES)
def test_OD_55_each_slot_of_ten_years_is_the_oracle_s(zone, figures):
    clock, draw = wall(zone), random.Random(f"{SEED} {zone}")
    figures["edges"] = len(clock.edges)
    for cadence in drawn(zone):
        expected = slots(cadence)
        found = [cadence.next_after(expected[0] - STRIDE)]
        while found[-1] < expected[-1]:
            found.append(cadence.next_after(found[-1]))
        assert found == expected, f"PROVE_SEED={SEED}"
        # Asked from anywhere: around each edge, and wherever a clock that steps by an hour may stand at a slot.
        steps = [timedelta(0), timedelta(seconds=1), timedelta(hours=1), timedelta(minutes=draw.randrange(1, 180))]
        places = [place for place in clock.edges if expected[0] < place < expected[-2]]
        places += draw.sample(expected[1:-2], min(20, len(expected) - 3))
        for place in (place + sign * step for place in places for step in steps for sign in (-1, 1)):
            following = next(slot for slot in expected[max(0, bisect_left(expected, place) - 1) :] if slot > place)
            assert cadence.next_after(place) == following, f"PROVE_SEED={SEED} {cadence} {place}"
        figures["cadences"] = figures.get("cadences", 0) + 1
        figures["slots"] = figures.get("slots", 0) + len(expected)


@pytest.mark.parametrize("zone", ZONES)
def test_T19_over_an_edge_with_a_clock_that_steps_by_an_hour_each_slot_fires_once(zone, engine, clock, figures):
    """Catch-up itself, every half hour of two days and a half, with four steps of the clock back or ahead."""
    of, draw = wall(zone), random.Random(f"{SEED} {zone}")
    edges = [edge for edge in of.edges if of.begin < edge < of.end] or [of.begin + timedelta(days=500)]
    for edge in edges if LONG else draw.sample(edges, 1):
        local = (edge - timedelta(minutes=1)).astimezone(ZoneInfo(zone))
        at = (local + timedelta(minutes=draw.choice((1, 16, 31, 46)))).replace(tzinfo=None)
        cadence = Cadence(every="day", at=f"{at:%H:%M}", zone=zone)
        now, end = edge - timedelta(hours=30), edge + timedelta(hours=30)
        clock.set(now.isoformat())
        engine.set_schedule("tour", "tour", {"name": "a"}, cadence)
        expected = [slot for slot in slots(cadence) if now < slot <= end]
        steps = sorted(draw.choices(range(1, 120), k=4))
        fired, n = [], 0
        while now < end or n < 120:
            now += timedelta(minutes=30)
            n += 1
            for _ in range(steps.count(n)):
                now += draw.choice((-1, 1)) * timedelta(hours=1)
            clock.set(now.isoformat())
            if engine.catch_up().get("started"):
                fired.append(engine.get_schedule("tour").last_due_at)
                assert fired[-1] <= now
                toy.work(engine)
        assert [slot for slot in fired if slot <= end] == expected, f"PROVE_SEED={SEED} {cadence} {edge}"
        engine.delete_schedule("tour")
        figures["edges with ticks"] = figures.get("edges with ticks", 0) + 1
        figures["fired"] = figures.get("fired", 0) + len(fired)


def test_the_oracle_sees_gaps_and_doubles():
    """By hand, so that it isn't the implementation's twin: what newspapers said of these nights."""

    def utc(text: str) -> datetime:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)

    for zone, wanted, instant in [
        ("Europe/Berlin", "2026-03-29 02:30", "2026-03-29 01:00"),
        ("Europe/Berlin", "2026-10-25 02:30", "2026-10-25 00:30"),
        ("Pacific/Apia", "2011-12-30 12:00", "2011-12-30 10:00"),
        ("America/Sao_Paulo", "2018-11-04 00:00", "2018-11-04 03:00"),
        ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-03 15:30"),
        ("Asia/Kathmandu", "2026-03-02 02:01", "2026-03-01 20:16"),
    ]:
        assert wall(zone).reaches(datetime.fromisoformat(wanted)) == utc(instant)
    assert all(a < b for a, b in pairwise(wall("Africa/Casablanca").edges))
