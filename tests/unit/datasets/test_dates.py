import pytest

from chalicelib.datasets.dates import datatype_of, is_before, is_written_as


@pytest.mark.parametrize(
    ("text", "datatype"),
    [
        ("2008", "gYear"),
        ("2004-04", "gYearMonth"),
        ("-2014-02", "gYearMonth"),
        ("2024-02-29", "date"),
        ("2024-01-31Z", "date"),
        ("2019-12-22T09:06:52.000Z", "dateTime"),
        ("2024-01-31T12:00:00+02:00", "dateTime"),
    ],
)
def test_the_four_forms_are_told_apart(text, datatype):
    assert datatype_of(text) == datatype
    assert [kind for kind in ("gYear", "gYearMonth", "date", "dateTime") if is_written_as(kind, text)] == [datatype]


@pytest.mark.parametrize(
    "text",
    [
        "2004-4",
        "2012-15",
        "16",
        "01.02.23",
        "2023-02-29",
        "2023-05-01 10:00:00",
        "2024-01-31T24:00:00",
        "letzten Mittwoch",
        "2024-01-31T12:00:00+15:00",
        "٢٠٢٤",
        "",
    ],
)
def test_OD_22_what_only_looks_like_a_date_is_refused(text):
    with pytest.raises(ValueError, match="must be a date like"):
        datatype_of(text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2012", "2013"),
        ("2013", "10000"),
        ("-0044", "-0043"),
        ("-0044-03-15", "2013"),
        ("2012-12", "2013"),
        ("2012", "2013-01-01T00:00:00Z"),
        ("2013Z", "2014Z"),
        ("2013-01-01T12:00:00", "2013-01-01T13:00:00Z"),
        ("2013-04+02:00", "2013-05+02:00"),
        ("2013-01-01", "2013-01-02T00:00:00"),
        ("2013-01-01T12:00:00", "2013-01-01T12:00:00.5"),
        ("2013-01-01T11:00:00Z", "2013-01-01T12:00:00Z"),
        ("2013-01-01T00:30:00+02:00", "2012-12-31T23:00:00Z"),
    ],
)
def test_a_date_that_is_certainly_before_another_is_known(one, other):
    assert is_before(one, other)
    assert not is_before(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("2013", "2013-12-31"),
        ("2013-05", "2013-05-31T23:59:59Z"),
        ("2013-01-01T12:00:00.5", "2013-01-01T12:00:00.50"),
        ("2013-01-01T12:00:00Z", "2013-01-01T14:00:00+02:00"),
        ("2013-01-01+14:00", "2013-01-02Z"),
        ("-0044-03-15T00:00:00Z", "-0044-03-15T00:00:00+01:00"),
    ],
)
def test_of_two_dates_that_may_be_the_same_none_is_before(one, other):
    assert not is_before(one, other)
    assert not is_before(other, one)
