"""When a schedule is due, by the wall clock of its zone."""

from datetime import UTC, datetime, timedelta

import pytest

from chalicelib.engine.cadence import Cadence, InvalidCadence, _zones


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def slots(cadence, after, number):
    found, instant = [], at(after)
    for _ in range(number):
        instant = cadence.next_after(instant)
        found.append(f"{instant:%Y-%m-%d %H:%M:%S}"[: 16 if not instant.second else None])
    return found


def daily(time, zone):
    return Cadence(every="day", at=time, zone=zone)


@pytest.mark.parametrize(
    ("cadence", "after", "expected"),
    [
        # Berlin, spring: 02:00 to 03:00 doesn't exist on 29 March; the first instant after the gap is 01:00 UTC.
        (
            daily("02:00", "Europe/Berlin"), "2026-03-27 12:00",
            ["2026-03-28 01:00", "2026-03-29 01:00", "2026-03-30 00:00"],
        ),
        (
            daily("02:30", "Europe/Berlin"), "2026-03-27 12:00",
            ["2026-03-28 01:30", "2026-03-29 01:00", "2026-03-30 00:30"],
        ),
        (daily("02:59", "Europe/Berlin"), "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 00:59"]),
        (daily("03:00", "Europe/Berlin"), "2026-03-28 12:00", ["2026-03-29 01:00", "2026-03-30 01:00"]),
        # Berlin, autumn: 02:00 to 03:00 exists twice on 25 October; the first is in summer time.
        (
            daily("02:00", "Europe/Berlin"), "2026-10-23 12:00",
            ["2026-10-24 00:00", "2026-10-25 00:00", "2026-10-26 01:00"],
        ),
        (daily("02:30", "Europe/Berlin"), "2026-10-24 12:00", ["2026-10-25 00:30", "2026-10-26 01:30"]),
        (daily("03:00", "Europe/Berlin"), "2026-10-24 12:00", ["2026-10-25 02:00", "2026-10-26 02:00"]),
        # New York
        (daily("02:30", "America/New_York"), "2026-03-07 12:00", ["2026-03-08 07:00", "2026-03-09 06:30"]),
        (daily("01:30", "America/New_York"), "2026-10-31 12:00", ["2026-11-01 05:30", "2026-11-02 06:30"]),
        # Lord Howe moves by half an hour: 02:00 to 02:30 doesn't exist on 4 October, 01:30 to 02:00 twice on 5 April.
        (daily("02:15", "Australia/Lord_Howe"), "2026-10-02 18:00", ["2026-10-03 15:30", "2026-10-04 15:15"]),
        (daily("01:45", "Australia/Lord_Howe"), "2026-04-03 18:00", ["2026-04-04 14:45", "2026-04-05 15:15"]),
        # Chile: the gap is at midnight, so the slot of 6 September falls after it, on the same day.
        (daily("00:00", "America/Santiago"), "2026-09-05 12:00", ["2026-09-06 04:00", "2026-09-07 03:00"]),
        # Samoa left out the whole of 30 December 2011: its slot is the first instant after.
        (
            daily("12:00", "Pacific/Apia"), "2011-12-29 12:00",
            ["2011-12-29 22:00", "2011-12-30 10:00", "2011-12-30 22:00"],
        ),
        # No summer time, a quarter-hour zone
        (daily("02:00", "Asia/Kathmandu"), "2026-03-01 00:00", ["2026-03-01 20:15", "2026-03-02 20:15"]),
    ],
)  # fmt: skip
def test_T19_daily_slots_over_the_edges_of_summer_time(cadence, after, expected):
    assert slots(cadence, after, len(expected)) == expected


def test_weekly_slots_are_local_weekdays():
    cadence = Cadence(every="week", at="00:30", on="sunday", zone="Europe/Berlin")
    assert slots(cadence, "2026-03-20 00:00", 3) == ["2026-03-21 23:30", "2026-03-28 23:30", "2026-04-04 22:30"]


def test_a_day_that_the_month_lacks_is_its_last_day():
    cadence = Cadence(every="month", at="12:00", on=31, zone="UTC")
    assert slots(cadence, "2028-01-30 00:00", 4) == [
        "2028-01-31 12:00",
        "2028-02-29 12:00",
        "2028-03-31 12:00",
        "2028-04-30 12:00",
    ]
    assert slots(Cadence(every="month", at="12:00", on=30, zone="UTC"), "2027-02-01 00:00", 1) == ["2027-02-28 12:00"]


def test_the_next_slot_is_after_the_instant_never_at_it():
    cadence = daily("02:00", "UTC")
    assert cadence.next_after(at("2026-01-01 02:00")) == at("2026-01-02 02:00")
    assert cadence.next_after(at("2026-01-01 01:59:59")) == at("2026-01-01 02:00")


@pytest.mark.parametrize(
    "zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "UTC"]
)
@pytest.mark.parametrize("time", ["00:00", "01:30", "02:15", "23:59"])
def test_every_day_has_exactly_one_slot_from_wherever_it_is_counted(zone, time):
    cadence = daily(time, zone)
    instant, days = cadence.next_after(at("2025-12-30 12:00")), []
    while instant < at("2027-01-02 00:00"):
        following = cadence.next_after(instant)
        # Counted from anywhere between two slots, the next one is the same.
        for part in (0.01, 0.5, 0.99):
            assert cadence.next_after(instant + (following - instant) * part) == following
        assert timedelta(hours=22) <= following - instant <= timedelta(hours=26)
        instant = following
        days.append(instant)
    assert 366 <= len(days) <= 368  # a year, and the days that the zone's offset adds


@pytest.mark.parametrize(
    ("field", "wrong"),
    [
        ("every", {"every": "hour"}),
        ("at", {"at": "2:00"}),
        ("at", {"at": "25:00"}),
        ("at", {"at": "02:00:30"}),
        ("at", {"at": 2}),
        ("zone", {"zone": "Berlin"}),
        ("zone", {"zone": ["UTC"]}),
        ("on", {"on": "sunday"}),
        ("on", {"every": "week"}),
        ("on", {"every": "week", "on": "Sonntag"}),
        ("on", {"every": "month"}),
        ("on", {"every": "month", "on": 0}),
        ("on", {"every": "month", "on": 32}),
        ("on", {"every": "month", "on": True}),
    ],
)
def test_what_is_no_cadence_is_refused_with_the_field_named(field, wrong):
    with pytest.raises(InvalidCadence) as refused:
        Cadence(**{"every": "day", "at": "02:00", "zone": "UTC"} | wrong)
    assert refused.value.field == field
    assert refused.value.detail.startswith(("It takes", "A "))


@pytest.mark.parametrize("zone", ["localtime", "Factory", "posixrules", "../Berlin", ""])
def test_a_zone_means_the_same_on_every_machine(zone, monkeypatch):
    monkeypatch.setattr("chalicelib.engine.cadence.available_timezones", lambda: {"UTC", "localtime", "Factory"})
    _zones.cache_clear()
    try:
        with pytest.raises(InvalidCadence, match="zone"):
            daily("02:00", zone)
    finally:
        _zones.cache_clear()
