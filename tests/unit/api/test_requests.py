"""What comes in over HTTP is read strictly: refused with a code and a field, never guessed, never an exception."""

import base64
from typing import Literal

import pytest
from chalice.app import Request
from pydantic import BaseModel, ConfigDict

from chalicelib.api import requests
from chalicelib.api.problems import Problem


def request(body=None, content_type="application/json", query=None, encoded=False):
    headers = {} if content_type is None else {"content-type": content_type}
    return Request(
        {
            "multiValueQueryStringParameters": query,
            "headers": headers,
            "pathParameters": {},
            "requestContext": {"httpMethod": "PUT", "resourcePath": "/x"},
            "stageVariables": {},
            "body": body,
            "isBase64Encoded": encoded,
        }
    )


@pytest.mark.parametrize(
    ("body", "value"),
    [
        (None, {}),
        ("", {}),
        (" \r\n", {}),
        ("{}", {}),
        (b'{"a": ["\xc3\xa4", 1, 1.5, null, true]}', {"a": ["ä", 1, 1.5, None, True]}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    ],
)
def test_a_json_object_is_read(body, value):
    assert requests.json_object(request(body)) == value


@pytest.mark.parametrize("content_type", [None, "application/json", 'Application/JSON; Charset="UTF-8"'])
def test_json_may_say_that_it_is_utf_8(content_type):
    assert requests.json_object(request('{"a": 1}', content_type)) == {"a": 1}


def test_an_empty_body_has_no_type_to_be_wrong_about():
    assert requests.json_object(request("", "application/x-www-form-urlencoded")) == {}


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ("{", "bad_json", None),
        ("[]", "bad_json", None),
        ("null", "bad_json", None),
        ('"text"', "bad_json", None),
        ("{'a': 1}", "bad_json", None),
        ('{"a": 1,}', "bad_json", None),
        ('{"a": 1} x', "bad_json", None),
        ('{"a": 1, "a": 2}', "bad_json", "a"),
        ('{"b": {"a": 1, "a": 1}}', "bad_json", "a"),
        ('{"a": NaN}', "bad_json", None),
        ('{"a": -Infinity}', "bad_json", None),
        ('{"a": 1e999}', "bad_json", None),
        ('{"a": %s}' % ("9" * 5000), "bad_json", None),
        ('{"a": "\\u0000"}', "bad_json", "a"),
        ('{"a": {"b": ["x", "\\ud800"]}}', "bad_json", "a.b[1]"),
        ('{"\\ud800": 1}', "bad_json", "?"),
        ('{"a": "\ud800"}', "bad_json", None),
        ("\ufeff{}", "bad_json", None),
        (b"\xef\xbb\xbf{}", "bad_json", None),
        (b'{"a": "\xe4"}', "bad_json", None),
        ('{"a": 1}'.encode("utf-16"), "bad_json", None),
        ('{"a": ' + "[" * 40 + "]" * 40 + "}", "bad_json", "a" + "[0]" * 31),
        ('{"a": ' * 200_000, "payload_too_large", None),
        ('{"a":' * 40_000 + "1" + "}" * 12_000, "bad_json", None),
        ("[" * 200_000, "bad_json", None),
        ('{"a": "' + "x" * requests.MAX_BODY + '"}', "payload_too_large", None),
    ],
)
def test_a_body_that_isnt_meant_is_refused(body, code, field):
    with pytest.raises(Problem) as refused:
        requests.json_object(request(body))
    assert (refused.value.code, refused.value.field) == (code, field)


def test_a_field_of_another_value_is_told_what_it_takes():
    class Body(BaseModel):
        model_config = ConfigDict(strict=True)
        every: Literal["day", "week", "month"]
        at: str

    with pytest.raises(Problem) as refused:
        requests.read_as(Body, {"every": "year", "at": 2}, "invalid_schedule")

    assert refused.value.errors == [
        {"field": "every", "detail": "It takes day, week or month."},
        {"field": "at", "detail": "It takes a text."},
    ]


def test_a_field_that_is_missing_or_unknown_is_told_with_what_there_is():
    class Body(BaseModel):
        model_config = ConfigDict(extra="forbid")
        every: str
        at: str = ""

    with pytest.raises(Problem) as refused:
        requests.read_as(Body, {"evry": "day"}, "invalid_schedule")

    assert refused.value.errors == [
        {"field": "every", "detail": "is missing"},
        {"field": "evry", "detail": "is no field here; it takes every, at"},
    ]
    assert refused.value.detail == "'every' is missing."


def test_base64_that_isnt_any_is_refused():
    assert requests.json_object(request(base64.b64encode(b'{"a": 1}').decode(), encoded=True)) == {"a": 1}
    with pytest.raises(Problem) as refused:
        requests.json_object(request("abc", encoded=True))
    assert refused.value.code == "bad_json"


@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/json; charset=utf-16", "text/json", "application/xml, application/json", "*/*", ";"],
)
def test_another_content_type_is_refused(content_type):
    with pytest.raises(Problem) as refused:
        requests.json_object(request('{"a": 1}', content_type))
    assert (refused.value.code, refused.value.field) == ("unsupported_media_type", "Content-Type")


def test_a_body_where_none_is_taken_is_refused_with_its_field():
    requests.no_members({})
    with pytest.raises(Problem) as refused:
        requests.no_members({"dsn\n": "postgresql://…"})
    assert refused.value.field == "dsn?"


def test_query_parameters_are_known_and_given_once():
    assert requests.query(request()) == {}
    assert requests.query(request(query={"limit": ["5"]}), "limit") == {"limit": "5"}
    for query, field in (({"limti": ["5"]}, "limti"), ({"limit": ["5", "6"]}, "limit"), ({"a\u202e": ["1"]}, "a?")):
        with pytest.raises(Problem) as refused:
            requests.query(request(query=query), "limit")
        assert (refused.value.status, refused.value.field) == (400, field)


@pytest.mark.parametrize("text", ["0", "-1", "1001", "1e3", "", " 1", "٣", "9" * 50])
def test_a_number_out_of_range_is_refused(text):
    with pytest.raises(Problem) as refused:
        requests.whole({"limit": text}, "limit", 50, most=1000)
    assert refused.value.field == "limit"
    assert requests.whole({"limit": "1000"}, "limit", 50, most=1000) == 1000
    assert requests.whole({}, "limit", 50, most=1000) == 50


@pytest.mark.parametrize("text", ["+1", " 1", "1.0", "1_0", "01", "00", "-0", ""])
def test_a_number_that_may_be_0_has_digits_alone_too(text):
    with pytest.raises(Problem) as refused:
        requests.whole({"skip": text}, "skip", 0, least=0, most=1000)
    assert refused.value.detail == "It must be a whole number from 0 to 1000."
    assert requests.whole({"skip": "0"}, "skip", 1, least=0, most=1000) == 0


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((requests.dataset_id, text) for text in ("", "-a", "A", "a_b", "ä", "a" * 64, "a/b", "a%20b", "a\n", "..")),
        *((requests.job_id, text) for text in ("", "1", "{019ad0c2-0000-7000-8000-000000000000}", "٣" * 36)),
        *((requests.version_number, text) for text in ("", "0", "01", "-1", "1.0", "9" * 10, "٣", "1\n")),
    ],
)
def test_a_path_that_cant_exist_is_not_found(read, text):
    with pytest.raises(Problem) as refused:
        read(text)
    assert refused.value.status == 404


def test_a_question_ends_with_its_own_mark():
    refused = requests.invalid("invalid_definition", [("licence", "isn't in the list. Did you mean CC_BY_2_5?")])

    assert refused.detail == "'licence' isn't in the list. Did you mean CC_BY_2_5?"


def test_a_remedy_is_said_once():
    assert Problem("payload_erased", "It was erased: send it anew.").detail == "It was erased: send it anew."
