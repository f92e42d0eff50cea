import pytest

from chalicelib.datasets.dates import datatype_of, is_written_as


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
