"""Loads over HTTP: what is taken, what is refused and how it is told, and whose business it is."""

import hashlib
import json
from urllib.parse import parse_qs, urlsplit

import pytest

from chalicelib import pipelines, settings
from chalicelib.api.openapi import LoadStatus, ProblemDocument
from chalicelib.pipelines.load import MAX_INLINE, MAX_UPLOAD, steps, upload_content
from chalicelib.pipelines.load.accepting import begin_upload
from chalicelib.security import create_token

from .seeding import call, define, problem, register_source, tokens, written

LOADS = "/datasets/flights/loads"
ROWS = [{"year": 2013, "origin": "JFK"}, {"year": 2014, "origin": None}]
COLUMNS = [{"name": "year", "type": "integer"}, {"name": "origin", "type": "text"}]


@pytest.fixture
def who(database, app, environment):
    """Tokens; a dataset that takes loads."""
    environment.setattr(steps, "context", pipelines.context)
    register_source(database)
    define(database, columns=COLUMNS, key=["year"])
    return tokens(database) | {"other": create_token(database, "other@example.org", "publisher")}


@pytest.fixture
def load(http, who):
    """Load as the publisher, with a key."""

    def ask(body=None, query="", token="publisher", key="a-key", media_type="application/json", path=LOADS):
        headers = {"content_type": media_type} | ({"idempotency_key": key} if key else {})
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return call(http, "POST", path + query, who[token], content, **headers)

    return ask


def test_a_load_is_accepted_done_and_told_to_its_owner_alone(http, engine, who, load):
    answered = load(ROWS)
    assert answered.status_code == 202
    location = answered.headers["Location"]
    status = json.loads(answered.body)
    assert location == f"http://localhost:4000/loads/{status['id']}"
    assert (status["status"], status["counts"], answered.headers["Retry-After"]) == ("queued", None, "2")
    assert status["links"]["self"] == location
    engine.work("work", job=None, until=lambda: 300.0)

    path = urlsplit(location).path
    done = LoadStatus.model_validate_json(call(http, "GET", path, who["publisher"]).body)
    assert (done.status, done.state) == ("succeeded", "LOADED")
    assert done.counts.model_dump() == {"rows": 2, "inserted": 2, "updated": 0, "deleted": 0}
    for stranger in ("other", "operator", "reader", "outside"):
        problem(call(http, "GET", path, who[stranger]), 404, "not_found")
        problem(call(http, "DELETE", path, who[stranger]), 403 if stranger == "reader" else 404)
    assert b"counts" in call(http, "GET", f"/internal/jobs/{status['id']}", who["operator"]).body


def test_another_token_of_the_same_owner_sees_it_until_it_reaches_the_dataset_no_more(http, database, who, load):
    path = urlsplit(load(ROWS).headers["Location"]).path

    for role, pattern, status in (("reader", "*", 200), ("publisher", "fl*", 200), ("publisher", "roads-*", 404)):
        token = create_token(database, "publisher@example.org", role, pattern)
        assert call(http, "GET", path, token).status_code == status


@pytest.mark.parametrize(
    ("media_type", "body", "query"),
    [
        ("application/json", b' [ {"year": 2013, "origin": "JFK"} ,{"year":2014}\n] ', ""),
        ("application/json", b'\xef\xbb\xbf[{"year": 2013, "origin": "JFK"}, {"year": 2014}]', ""),
        ("application/jsonl", b'{"year": 2013, "origin": "JFK"}\n{"year": 2014}\n', ""),
        ("application/jsonl", b'\xef\xbb\xbf{"year": 2013, "origin": "JFK"}\n{"year": 2014}\n', ""),
        ("application/x-ndjson; charset=utf-8", b'{"year": 2013, "origin": "JFK"}\n{"year": 2014}', ""),
        ("text/csv", b"year,origin\n2013,JFK\n2014,\n", ""),
        (
            "text/csv; charset=UTF-8",
            b"\xef\xbb\xbf!\norigin;year\n'JFK';2013\n-;2014\n",
            "?delimiter=%3B&quote='&null=-&skip=1",
        ),
    ],
)
def test_rows_come_as_json_json_lines_or_csv(database, engine, load, media_type, body, query):
    answered = load(body, query, media_type=media_type)

    assert answered.status_code == 202, answered.body
    [row] = database.run("select request from engine.job")
    assert row["request"]["body"].encode() == body
    engine.work("work", job=None, until=lambda: 300.0)
    assert database.run("select * from store.flights order by year") == [
        {"year": 2013, "origin": "JFK"},
        {"year": 2014, "origin": None},
    ]


def test_the_same_key_is_the_same_load_and_something_else_under_it_is_refused(http, database, who, load):
    first = json.loads(load(ROWS).body)["id"]

    assert json.loads(load(ROWS).body)["id"] == first
    for another in (load(ROWS[:1]), load(ROWS, "?mode=replace")):
        problem(another, 409, "idempotency_mismatch", "Idempotency-Key")
    assert json.loads(load(ROWS, key="another").body)["id"] != first
    assert json.loads(load(ROWS, token="other").body)["id"] != first  # everybody has keys of his own
    assert database.run("select count(*) as jobs from engine.job") == [{"jobs": 3}]
    # In this order: the second waits for the first.
    waiting = database.run("select held_back from engine.job order by order_number")
    assert [row["held_back"] for row in waiting] == [False, True, True]


@pytest.mark.parametrize("dialect", ["null=-", "delimiter=%3B", "quote='", "decimal=,", "date=DD.MM.YYYY"])
def test_how_rows_are_written_is_a_part_of_what_a_key_stands_for(database, load, dialect):
    content = b"year\n2013\n"
    assert load(content, media_type="text/csv").status_code == 202
    another = load(content, f"?{dialect}", media_type="text/csv")
    problem(another, 409, "idempotency_mismatch", "Idempotency-Key")


def test_one_key_for_two_datasets_is_two_loads(database, load):
    define(database, "roads", columns=COLUMNS, key=["year"])
    answers = [load(ROWS, token="operator", path=path) for path in (LOADS, "/datasets/roads/loads")]

    assert [answered.status_code for answered in answers] == [202, 202]
    assert len({json.loads(answered.body)["id"] for answered in answers}) == 2


def test_an_upload_is_for_the_dataset_that_it_was_begun_for(http, database, who, load):
    define(database, "roads", columns=COLUMNS, key=["year"])
    begun = call(http, "POST", "/datasets/roads/loads/uploads", who["operator"], {"bytes": 12})
    upload = json.loads(begun.body)["id"]

    problem(load(None, f"?upload={upload}&format=csv", "operator"), 422, "unknown_upload", "upload")
    assert database.run("select job_id from dataset.upload") == [{"job_id": None}]


def test_rows_that_do_not_fit_are_named_to_their_sender_and_nothing_is_kept(database, load):
    before = written(database)
    rows = [{"year": "CANARY" * 40, "origin": n} for n in range(150)]
    refused = problem(load([*ROWS, *rows, {"origin": "x"}, ROWS[0]]), 422, "invalid_rows")

    assert refused["records"] == 152
    assert len(refused["rows"]) == 100
    assert refused["rows"][0] == {"row": 3, "column": "year", "reason": "not_integer", "value": ("CANARY" * 40)[:100]}
    ProblemDocument.model_validate(refused)
    refused = problem(load([*ROWS, {"origin": "x"}, ROWS[0]]), 422, "invalid_rows")
    assert refused["rows"] == [
        {"row": 3, "column": "year", "reason": "missing"},
        {"row": 4, "column": "year", "reason": "key_twice", "value": "2013"},
    ]
    assert written(database) == before


@pytest.mark.parametrize(
    ("body", "media_type", "query", "status", "code", "field"),
    [
        (b"[]", "application/json", "", 422, "no_rows", None),
        (b'[{"year": 1, "when": 2}]', "application/json", "", 422, "unknown_column", "when"),
        (b"origin\nJFK\n", "text/csv", "", 422, "missing_column", "year"),
        (b"year,origin\n1,x,y\n", "text/csv", "", 422, "unreadable_rows", None),
        (b"", "text/csv", "", 422, "unreadable_rows", None),
        (b'{"year": 1}', "application/json", "", 422, "unreadable_rows", None),
        (b'[{"year": 1}', "application/json", "", 422, "unreadable_rows", None),
        (b'[{"year": NaN}]', "application/json", "", 422, "unreadable_rows", None),
        (b'[{"year": 1} {"year": 2}]', "application/json", "", 422, "unreadable_rows", None),
        (b'[{"year": 1}] 2', "application/json", "", 422, "unreadable_rows", None),
        (b'[{"year": 1}, 2]', "application/json", "", 422, "unreadable_rows", None),
        (b'[{"year": 1}, }]', "application/json", "", 422, "unreadable_rows", None),
        (b"\xff[]", "application/json", "", 422, "unreadable_rows", None),
        (b"", "application/json", "?mode=replace", 422, "unreadable_rows", None),
        (b"", "application/jsonl", "?mode=replace", 422, "no_rows", None),
        (b"[]", "application/json", "?mode=replace", 422, "no_rows", None),
        (b"year,origin\n", "text/csv", "?mode=replace", 422, "no_rows", None),
        (bytes(range(256)), "application/jsonl", "", 422, "unreadable_rows", None),
        (bytes(range(256)), "text/csv", "?mode=replace", 422, "unreadable_rows", None),
        (b"year\n1\n", "application/xml", "", 415, "unsupported_media_type", "Content-Type"),
        (b"year\n1\n", "text/csv; charset=latin1", "", 415, "unsupported_media_type", "Content-Type"),
        (b"year\n1\n", "text/csv", "?mode=append", 400, "bad_parameter", "mode"),
        (b"year\n1\n", "text/csv", "?delimiter=%3B%3B", 400, "bad_parameter", "delimiter"),
        (
            b"",
            "",
            "?upload=00000000-0000-0000-0000-000000000000&format=csv&encoding=utf8",
            400,
            "bad_parameter",
            "encoding",
        ),
        (b"year\n1\n", "text/csv", "?delimiter=%0A", 400, "bad_parameter", "delimiter"),
        (b"year\n1\n", "text/csv", "?delimiter=x&quote=x", 400, "bad_parameter", "delimiter"),
        (b"year\n1\n", "text/csv", "?date=DD.MM.YY", 400, "bad_parameter", "date"),
        (b"year\n1\n", "text/csv", "?date=DDaMM.YYYY", 400, "bad_parameter", "date"),
        (b"year\n1\n", "text/csv", "?decimal=x", 400, "bad_parameter", "decimal"),
        (b"year\n1\n", "text/csv", "?skip=-1", 400, "bad_parameter", "skip"),
        (b"year\n1\n", "text/csv", "?skip=%2B0", 400, "bad_parameter", "skip"),
        (b"year\n1\n", "text/csv", "?skip=1001", 400, "bad_parameter", "skip"),
        (b"year\n1\n", "text/csv", "?encoding=windows-1252", 400, "bad_parameter", "encoding"),
        (b"year\n1\n", "text/csv", "?format=csv", 400, "bad_parameter", "format"),
        (b"[]", "application/json", "?delimiter=x", 400, "bad_parameter", "delimiter"),
        (b"", "text/csv", "?upload=1", 400, "bad_parameter", "upload"),
        (b"", "text/csv", "?upload=00000000-0000-0000-0000-000000000000", 400, "bad_parameter", "format"),
        (b"", "", "?upload=00000000-0000-0000-0000-000000000000&format=csv", 422, "unknown_upload", "upload"),
        (b"x", "", "?upload=00000000-0000-0000-0000-000000000000&format=csv", 400, "bad_request", None),
        (b"year\n1\n", "text/csv", "?null=%00", 400, "bad_parameter", "null"),
        (b"year\n1\n", "text/csv", "?quote=%00", 400, "bad_parameter", "quote"),
        (b"year\n1\n", "text/csv", "?date=YYYY%00MM%00DD", 400, "bad_parameter", "date"),
        (b"x" * (MAX_INLINE + 1), "text/csv", "", 413, "payload_too_large", None),
    ],
)
def test_what_is_not_meant_is_refused_and_leaves_nothing(database, load, body, media_type, query, status, code, field):
    before = written(database)

    refused = problem(load(body, query, media_type=media_type), status, code, field)

    assert refused["detail"]
    assert "String should" not in refused["detail"]
    assert "Input should" not in refused["detail"]
    assert written(database) == before


def test_a_body_that_is_no_base64_is_refused(app, who):
    from chalice.app import Request

    from chalicelib.api.loads import _body
    from chalicelib.api.problems import Problem

    class Broken(Request):
        def __init__(self):
            pass

        @property
        def raw_body(self):
            raise ValueError("CANARY")

    with pytest.raises(Problem) as refused:
        _body(Broken())
    assert refused.value.code == "bad_request"


@pytest.mark.parametrize("row", [b"%d," + b"x" * 93 + b"\n", b"%d,\n"], ids=["long", "short"])
def test_three_megabytes_are_taken_however_many_rows_they_are(database, load, row):
    content = b"year,origin\n" + b"".join(row % n for n in range(MAX_INLINE // (len(row) + 2)))
    content = content[: content.rindex(b"\n", 0, MAX_INLINE) + 1]
    assert MAX_INLINE * 0.9 < len(content) <= MAX_INLINE

    assert load(content, media_type="text/csv").status_code == 202


@pytest.mark.parametrize("sign", ['""', "\\\\"], ids=["quotes", "backslashes"])
def test_three_megabytes_of_what_json_doubles_stay_below_what_lambda_takes(load, sign):
    body = b'year,origin\n2013,"' + sign.encode() * 1_500_000
    body = body[:2_999_998] + b'"\n'
    assert len(body) == 3_000_000
    # What stands beside the body in the event: at most 10,240 bytes of headers, told twice, and the request's context.
    assert len(json.dumps({"body": body.decode()})) + 2 * 10_240 + 10_000 < 6_291_456

    assert load(body, media_type="text/csv").status_code == 202
    problem(load(body + b"\n", media_type="text/csv", key="another"), 413, "payload_too_large")


def test_a_name_is_not_told_at_length(load):
    def of(quotes):
        return b'"' + b'""' * quotes + b'",year\n1,1\n'

    refused = problem(load(of(10_000), media_type="text/csv"), 422, "unknown_column", '"' * 100)
    assert len(json.dumps(refused)) < 1000
    refused = problem(load(of(1_000_000), media_type="text/csv"), 422, "unreadable_rows")
    assert refused["detail"].startswith("Line 1, column 1: a column's name has at most 10,000 characters")


def test_a_load_needs_a_key_and_a_dataset_that_takes_it(database, load):
    problem(load(ROWS, key=None), 400, "bad_request", "Idempotency-Key")
    problem(load(ROWS, key="ü"), 400, "bad_request", "Idempotency-Key")
    define(database, columns=COLUMNS)
    problem(load(ROWS), 409, "takes_no_loads", "key")


def test_an_owner_cancels_his_load(http, engine, who, load):
    path = urlsplit(load(ROWS).headers["Location"]).path
    cancelled = json.loads(call(http, "DELETE", path, who["publisher"]).body)
    assert (cancelled["state"], cancelled["failure"]["code"], cancelled["counts"]) == ("FAILED", "cancelled", None)
    requeued = call(http, "POST", f"/internal/failures/{cancelled['id']}/requeue", who["operator"])
    problem(requeued, 409, "payload_erased")
    path = urlsplit(load(ROWS, key="b").headers["Location"]).path
    engine.work("work", job=None, until=lambda: 300.0)
    problem(call(http, "DELETE", path, who["publisher"]), 409, "conflict")


def test_an_owned_load_is_told_at_its_next_heartbeat(http, engine, who, load):
    from datetime import timedelta
    from uuid import uuid4

    answered = load(ROWS)
    leased = engine.claim("work", job=None, ask=uuid4(), lease=timedelta(seconds=60))

    told = call(http, "DELETE", urlsplit(answered.headers["Location"]).path, who["publisher"])
    assert (told.status_code, leased.state) == (202, "LOAD")


def test_an_upload_has_an_address_of_its_own_for_so_many_bytes(http, database, who, load):
    answered = call(http, "POST", f"{LOADS}/uploads", who["publisher"], {"bytes": 12})
    assert answered.status_code == 201
    upload = json.loads(answered.body)
    address = urlsplit(upload["url"])
    signed = parse_qs(address.query)

    assert upload["url"].startswith("http://localhost:4001/leaseway-files/uploads/")
    assert address.path.endswith(upload["id"])
    assert "content-length" in signed["X-Amz-SignedHeaders"][0]
    assert signed["X-Amz-Expires"] == ["900"]
    assert (upload["method"], upload["bytes"], upload["expires_at"]) == ("PUT", 12, "2026-03-03T09:00:00.000Z")
    for stranger, status in (("other", 422), ("publisher", 202)):
        assert load(None, f"?upload={upload['id']}&format=csv", stranger).status_code == status
    [job] = database.run("select request from engine.job")
    assert (job["request"]["upload"], job["request"]["body"]) == (upload["id"], "")


@pytest.fixture
def begin(http, who):
    """Begin an upload of a content, whose SHA-256 is told."""

    def ask(content: bytes, token="publisher", told=str):
        announced = {"bytes": len(content), "sha256": told(hashlib.sha256(content).hexdigest())}
        answered = call(http, "POST", f"{LOADS}/uploads", who[token], announced)
        assert answered.status_code == 201, answered.body
        return json.loads(answered.body)

    return ask


@pytest.mark.parametrize("told", [str.lower, str.upper])
def test_an_upload_whose_sha256_was_told_takes_that_file_alone(begin, told):
    upload = begin(b"year\n2013\n", told=told)

    signed = parse_qs(urlsplit(upload["url"]).query)["X-Amz-SignedHeaders"][0].split(";")
    assert {"content-length", "x-amz-checksum-sha256"} <= {*signed}
    assert upload["headers"] == {"x-amz-checksum-sha256": "gIXAxBMmxXAwdYiR7cB8FugkLrQNgro6EQZTmn4Atag="}


def test_the_same_file_uploaded_anew_is_the_same_load_whatever_became_of_it(http, database, who, load, begin):
    content = b"year\n2013\n"
    first, again = begin(content), begin(content)
    job = json.loads(load(None, f"?upload={first['id']}&format=csv").body)["id"]

    def same(upload, query=""):
        answered = load(None, f"?upload={upload['id']}&format=csv{query}")
        return answered.status_code, json.loads(answered.body).get("id")

    assert first["id"] != again["id"]
    assert [same(upload) for upload in (first, again, begin(content))] == [(202, job)] * 3
    assert database.run("select count(*) as taken from dataset.upload where job_id is not null") == [{"taken": 1}]
    assert call(http, "DELETE", f"/loads/{job}", who["publisher"]).status_code == 200
    database.run("delete from dataset.upload")  # as cleanup does, once their objects are gone
    assert [same(upload) for upload in (first, again, begin(content))] == [(202, job)] * 3

    untold = json.loads(call(http, "POST", f"{LOADS}/uploads", who["publisher"], {"bytes": len(content)}).body)
    assert untold["headers"] == {}
    for query in (f"?upload={begin(b'year\n2014\n')['id']}&format=csv", f"?upload={untold['id']}&format=csv"):
        problem(load(None, query), 409, "idempotency_mismatch", "Idempotency-Key")
    assert same(again, "&mode=replace") == (409, None)
    assert load(None, f"?upload={begin(content)['id']}&format=csv", key="another").status_code == 202


def test_T28_two_owners_of_the_same_file_cant_be_told_by_their_uploads(begin):
    ids = [begin(b"year\n2013\n", token)["id"] for token in ("publisher", "publisher", "other")]

    assert ids[0][:18] == ids[1][:18] != ids[2][:18]
    assert len({*ids}) == 3


def test_T28_what_an_uploads_id_says_of_its_file_nobody_can_guess_without_the_key(engine, who, environment):
    def said():
        upload, _ = begin_upload(engine, "flights", "somebody", 1, bytes(32))
        return upload_content(upload)

    before = said()
    assert said() == before
    environment.setenv("LEASEWAY_HASH_KEY", "another key, that is as long as the first one")
    settings.settings.cache_clear()
    assert said() != before


@pytest.mark.parametrize("sha256", ["", "0" * 63, "0" * 65, "g" * 64, "0" * 64 + "\n", 7])
def test_a_sha256_that_is_none_is_refused(http, who, sha256):
    answered = call(http, "POST", f"{LOADS}/uploads", who["publisher"], {"bytes": 12, "sha256": sha256})

    problem(answered, 400, "bad_json", "sha256")


@pytest.mark.parametrize("size", [0, MAX_UPLOAD + 1, "12", None, 1.5])
def test_an_upload_says_its_size(http, who, size):
    answered = call(http, "POST", f"{LOADS}/uploads", who["publisher"], {"bytes": size})

    problem(answered, 400, "bad_json", "bytes")
    assert (b"at most 50000000 are taken. Split the file" in answered.body) is (size == MAX_UPLOAD + 1)


def test_what_is_no_load_is_not_found(http, engine, who):
    publication = pipelines.publish(engine, "flights").id
    for job in (publication, "1", "00000000-0000-7000-8000-000000000000"):
        problem(call(http, "GET", f"/loads/{job}", who["operator"]), 404, "not_found")


def test_the_datasets_status_says_how_many_loads_wait_and_since_when_but_not_whose(http, clock, who, load, engine):
    """A file that was never uploaded is seen by the worker alone; until then it is one of those that wait."""
    load(ROWS)
    clock.advance("1 min")
    other = json.loads(load(ROWS, key="another", token="other").body)["id"]

    answered = call(http, "GET", "/datasets/flights/status", who["reader"])
    assert json.loads(answered.body)["loads"] == {"unfinished": 2, "since": "2026-03-02T09:00:00.000Z"}
    for private in (other, "publisher@", "other@", "JFK"):
        assert private.encode() not in answered.body
    engine.work_on("work", [], lambda: 300.0)
    shown = json.loads(call(http, "GET", "/datasets/flights/status", who["reader"]).body)
    assert shown["loads"] == {"unfinished": 0, "since": None}
