"""What the client does to the server's rows, and how the server's refusals are called."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace

import psycopg
import pytest

from chalicelib import codes
from chalicelib.exports import XML
from chalicelib.exports.errors import CODES, code_of, of_psycopg
from chalicelib.exports.formats import element_name

PAGE = Path(__file__).parents[3] / "docs" / "exports.md"


@pytest.mark.parametrize(
    ("name", "element"),
    [
        ("dep_time", "dep_time"),
        ("größe", "größe"),
        ("2020", "_x0032_020"),
        ("my col", "my_x0020_col"),
        ("a<b", "a_x003C_b"),
        ("xml", "_x0078_ml"),
        ("XmlId", "_x0058_mlId"),
        ("a_x0041_", "a_x005F_x0041_"),
        ("a:b", "a_x003A_b"),
        ("it's", "it_x0027_s"),
        ("ſ", "_x017F_"),
        ("😀", "_x1F600_"),
    ],
)
def test_OD_10_every_column_has_an_element_name_that_can_be_read_back(name, element):
    assert element_name(name) == element
    assert ET.fromstring(f"<{element}/>").tag == element
    assert re.sub("_x([0-9A-F]{4,6})_", lambda found: chr(int(found[1], 16)), element) == name


def test_OD_09_what_xml_cannot_hold_is_removed_and_counted_by_character():
    # As the server sends it: a row that holds the quote is wrapped in it, the quote doubled.
    rows = "\x01<a>one \x01\x01 two \x0b three \x1f</a>\x01\n<a>tab\t kept</a>\n<a>\ufffe and \uffff</a>\n".encode()

    cleaned, removed = XML.clean(rows)

    assert cleaned.decode() == "<a>one  two  three </a>\n<a>tab\t kept</a>\n<a> and </a>\n"
    assert removed == 5


def test_OD_09_a_row_wrapped_for_another_reason_counts_for_nothing():
    assert XML.clean(b"\x01<a>\x02</a>\x01\n") == (b"<a></a>\n", 1)
    assert XML.clean("<a>ｆｕｌｌ ﷐</a>\n".encode()) == ("<a>ｆｕｌｌ ﷐</a>\n".encode(), 0)


@pytest.mark.parametrize(
    ("sqlstate", "code"),
    [
        (None, "source_unreachable"),
        ("08006", "source_unreachable"),
        ("53300", "source_unreachable"),
        ("57P01", "source_unreachable"),
        ("HV00N", "source_unreachable"),
        ("54000", "source_bad_record"),
        ("40001", "source_conflict"),
        ("55P03", "source_conflict"),
        ("57014", "source_timeout"),
        ("25P03", "source_timeout"),
        ("28P01", "source_denied"),
        ("42501", "source_denied"),
        ("25006", "source_denied"),
        ("42P01", "source_changed"),
        ("42703", "source_changed"),
        ("3F000", "source_changed"),
        ("22012", "source_bad_record"),
        ("P0001", "source_bad_record"),
        ("XX001", "source_bad_record"),
        ("XX000", "source_conflict"),
        ("25001", "source_changed"),
        ("2D000", "source_changed"),
        ("55P02", "source_changed"),
        ("38000", "source_bad_record"),
        ("39004", "source_bad_record"),
        ("2F005", "source_bad_record"),
        ("44000", "source_bad_record"),
        ("2BP01", "source_bad_record"),
        ("72000", "source_conflict"),
    ],
)
def test_each_class_of_sqlstate_has_its_code(sqlstate, code):
    assert code_of(sqlstate) == code


def test_the_page_says_which_sqlstate_has_which_code():
    rows = re.findall(r"^\| `(source_\w+)` \| (.*?) \|", PAGE.read_text(encoding="utf-8"), re.M)
    said = {code: set(re.findall(r"\b(?:[0-9A-Z]{5}|[0-9A-Z]{2}P?)\b", text)) for code, text in rows}

    for prefix, code in CODES.items():
        assert prefix in said[code], f"{prefix} is {code}"


@pytest.mark.parametrize("name", ["authentication", "pg_hba", "too many clients"])
def test_a_database_that_is_not_there_is_called_so_whatever_its_name(name):
    said = (
        f'connection failed: connection to server at "::1", port 5432 failed: FATAL:  database "{name}" does not exist'
    )

    assert of_psycopg(psycopg.OperationalError(said), "t").details["sqlstate"] == "3D000"


def test_a_query_that_writes_is_not_sent_to_grant():
    assert "nothing is written at a source" in codes.sentence("source_denied", "25006")
    assert "GRANT" not in codes.sentence("source_denied", "25006")
    assert "primary" in codes.sentence("target_denied", "25006")


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('server certificate for "a.test" (and 2 other names) does not match host name "b.test"', "of another name"),
        ("SSL error: certificate verify failed", "of an unknown authority"),
        ('root certificate file "/gone" does not exist\nEither provide the file, …', "no authority"),
        ("server does not support SSL, but SSL was required", "no TLS"),
    ],
)
def test_a_server_that_does_not_prove_who_it_is_is_told_from_one_that_is_off(said, found):
    begins = 'connection failed: connection to server at "192.0.2.1", port 5432 failed: '

    error = of_psycopg(psycopg.OperationalError(begins + said), "t")
    assert error.code == "source_untrusted"
    assert found in error.details["found"]
    assert codes.FAILURES[error.code]
    assert of_psycopg(psycopg.OperationalError(f"{begins}Connection refused"), "t").code == "source_unreachable"


@pytest.mark.parametrize(("severity", "code"), [("ERROR", "source_changed"), ("FATAL", "source_unreachable")])
def test_a_query_with_a_parameter_is_at_fault_and_a_pool_that_hangs_up_is_away(severity, code):
    error = type("Said", (psycopg.errors.ProtocolViolation,), {"diag": SimpleNamespace(severity_nonlocalized=severity)})

    assert of_psycopg(error(), "query").code == code


def test_what_the_server_has_not_the_memory_to_write_is_a_bad_record_and_waited_for_by_nobody():
    said = "invalid memory alloc request size 2000000016"

    assert of_psycopg(psycopg.errors.InternalError_(said), "t").code == "source_bad_record"
    assert of_psycopg(psycopg.errors.InternalError_("cache lookup failed for type 1"), "t").code == "source_conflict"
