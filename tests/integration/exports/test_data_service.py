"""The client of a remote data service, against one that misbehaves; and the contract as it is written down."""

import hashlib
import threading
from collections.abc import Iterator
from functools import reduce
from operator import getitem
from typing import Any
from uuid import UUID, uuid4

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import validate

from chalicelib.exports.data_service import (
    Export,
    ExportLost,
    FileMismatch,
    NewerFence,
    RemoteDataService,
    ServiceAway,
    ServiceRefused,
    Wanted,
    WantedFile,
    _Export,
)
from tests.data_service.server import DRIPS, TOKEN, DataService, contract, schema, serving

WANTED = Wanted(
    key=UUID("0198c0de-0000-7000-8000-000000000001"),
    dataset="trees",
    definition=3,
    source="trees",
    source_revision=2,
    columns=[
        {"name": "id", "type": "integer", "source": "tree_id"},
        {"name": "height", "type": "decimal", "source": "height"},
    ],
    files=[
        WantedFile("trees.csv", "csv", "text/csv", options={"bom": True}),
        WantedFile("trees.csv.gz", "csv", "text/csv", "application/gzip", {"bom": True}),
        WantedFile("trees.json", "json", "application/json"),
    ],
)


@pytest.fixture
def remote() -> Iterator[DataService]:
    with serving() as service:
        service.elsewhere = service.url.replace("/v1", "/elsewhere")
        yield service


@pytest.fixture
def client(remote: DataService) -> RemoteDataService:
    return RemoteDataService(remote.url, TOKEN)


def finished(client: RemoteDataService, fence: int = 7) -> Export:
    client.start(WANTED, fence=fence)
    return client.start(WANTED, fence=fence)


def test_the_contract_is_valid_openapi_and_each_of_its_schemas_is_one() -> None:
    validate(contract())
    for part in contract()["components"]["schemas"].values():
        Draft202012Validator.check_schema(part)


def test_what_the_client_sends_is_what_the_contract_says_and_nothing_else(client, remote) -> None:
    finished(client)

    assert remote.faults == []
    assert remote.bodies[0] == {
        "fence": 7,
        "dataset": "trees",
        "definition": 3,
        "source": {"name": "trees", "revision": 2},
        "columns": [
            {"name": "id", "type": "integer", "source": "tree_id"},
            {"name": "height", "type": "decimal", "source": "height"},
        ],
        "files": [
            {"name": "trees.csv", "format": "csv", "media_type": "text/csv", "options": {"bom": True}},
            {
                "name": "trees.csv.gz",
                "format": "csv",
                "media_type": "text/csv",
                "compress": "application/gzip",
                "options": {"bom": True},
            },
            {"name": "trees.json", "format": "json", "media_type": "application/json"},
        ],
    }
    assert remote.tokens == {f"Bearer {TOKEN}"}


def test_what_the_reference_server_answers_is_what_the_contract_says(client, remote) -> None:
    finished(client)
    kept = remote.exports[str(WANTED.key)]

    assert not list(schema("Export").iter_errors(remote.document(kept)))
    remote.failure = {"code": "source_denied"}
    assert not list(schema("Export").iter_errors(remote.document(kept)))
    assert list(schema("Export").iter_errors({"status": "done", "fence": 1}))
    assert list(schema("Export").iter_errors({"status": "failed", "fence": 1}))


def test_the_client_takes_what_the_contract_allows_and_nothing_larger() -> None:
    taken, allowed = _Export.model_json_schema(), contract()

    assert limits(taken, taken) == limits(allowed["components"]["schemas"]["Export"], allowed)


def limits(schema: Any, whole: Any, at: str = "") -> dict[str, Any]:
    """Each limit of a schema, by where it stands."""
    found = {f"{at} {name}": schema[name] for name in LIMITS & schema.keys()}
    parts = [(at, part) for name in ("anyOf", "oneOf") for part in schema.get(name, ())]
    parts += [(f"{at}.{name}", part) for name, part in schema.get("properties", {}).items()]
    parts += [(f"{at}[]", schema["items"])] if "items" in schema else []
    if "$ref" in schema:
        parts.append((at, reduce(getitem, schema["$ref"].split("/")[1:], whole)))
    for place, part in parts:
        found |= limits(part, whole, place)
    return found


LIMITS = {"minimum", "maximum", "maxLength", "maxItems", "pattern"}


def test_without_a_token_none_is_sent(remote) -> None:
    with pytest.raises(ServiceRefused) as refused:
        RemoteDataService(remote.url).look(WANTED)
    assert refused.value.details == {"host": "127.0.0.1", "status": "4xx"}
    assert remote.tokens == {None}


AWAY = {
    "lost request": {"status": "unreachable"},
    "lost reply": {"status": "unreachable"},
    "silent": {"status": "timeout"},
    "dripping": {"status": "timeout"},
    "dripping header": {"status": "timeout"},
    "dripping chunk": {"status": "timeout"},
    "continuing": {"status": "timeout"},
    "500": {"status": "5xx"},
    "503": {"status": "5xx", "seconds": 3600},
    "429": {"status": "4xx", "seconds": 900},
    "cut short": {"status": "unreachable"},
}
REFUSED = {"redirect": "3xx", "400": "4xx", "huge": "too long", "deep": "unreadable", "text": "unreadable"}


@pytest.mark.parametrize("kind", AWAY)
def test_an_outage_is_told_with_its_host_and_a_second_try_finds_the_same_export(client, remote, kind) -> None:
    remote.misbehave("start", kind)
    impatient = RemoteDataService(remote.url, TOKEN, timeout=0.5 if AWAY[kind]["status"] == "timeout" else 20)
    with pytest.raises(ServiceAway) as away:
        impatient.start(WANTED, fence=7)
    assert away.value.details == {"host": "127.0.0.1", **AWAY[kind]}

    assert finished(client).done
    assert list(remote.exports) == [str(WANTED.key)]


@pytest.mark.parametrize("kind", [*REFUSED, "404", "another shape", "a text for a number", "done without files"])
def test_a_refusal_is_told_without_a_word_of_what_was_answered(client, remote, kind) -> None:
    remote.misbehave("start", kind)
    with pytest.raises(ServiceRefused) as refused:
        client.start(WANTED, fence=7)
    assert "canary" not in str(refused.value.details)
    assert refused.value.details["status"] == {"404": "4xx", **REFUSED}.get(kind, "unreadable")


@pytest.mark.parametrize("where", ["start", "look", "file", "delete", "fence"])
def test_a_redirect_is_never_followed(client, remote, where) -> None:
    finished(client)
    remote.misbehave(where, "redirect")
    before = len(remote.asked)
    with pytest.raises(ServiceRefused) as refused:
        {
            "start": lambda: client.start(WANTED, fence=7),
            "look": lambda: client.look(WANTED),
            "file": lambda: list(client.read(WANTED.key, "trees.csv")),
            "delete": lambda: client.delete(WANTED.key),
            "fence": client.newest_fence,
        }[where]()
    assert refused.value.details["status"] == "3xx"
    assert len(remote.asked) == before + 1


@pytest.mark.parametrize("kind", ["part of the files", "more files", "other records"])
def test_a_list_that_is_not_what_was_asked_for_is_a_mismatch(client, remote, kind) -> None:
    client.start(WANTED, fence=7)
    remote.misbehave("start", kind)
    with pytest.raises(FileMismatch):
        client.start(WANTED, fence=7)


def test_a_newer_fence_is_told_and_an_older_one_that_is_let_through_too(client, remote) -> None:
    client.start(WANTED, fence=9)
    for kind in ("", "older fence accepted"):
        remote.misbehave("start", kind)
        with pytest.raises(NewerFence) as newer:
            client.start(WANTED, fence=7)
        assert newer.value.fence == 9
    assert client.newest_fence() == 9


@pytest.mark.parametrize("kind", ["older fence accepted", "older fence refused"])
def test_a_service_that_keeps_no_fence_or_refuses_a_newer_one_is_none(client, remote, kind) -> None:
    client.start(WANTED, fence=7)
    remote.exports[str(WANTED.key)].fence = 3
    remote.misbehave("start", kind)
    with pytest.raises(ServiceRefused) as refused:
        client.start(WANTED, fence=7)
    assert refused.value.details["status"] == "fence"


def test_an_export_that_is_known_is_never_silently_started_anew(client, remote) -> None:
    client.start(WANTED, fence=7)
    remote.lose()
    with pytest.raises(ExportLost):
        client.start(WANTED, fence=8, known=True)
    with pytest.raises(ExportLost):
        client.look(WANTED)
    assert remote.left() == []


@pytest.mark.parametrize(
    ("told", "code", "details"),
    [
        ({"code": "source_denied", "details": {"sqlstate": "42501"}}, "source_denied", {"sqlstate": "42501"}),
        (
            {"code": "source_bad_record", "details": {"record": 7, "column": "tree_id", "text": "canary"}},
            "source_bad_record",
            {"record": 7, "column": "tree_id"},
        ),
        ({"code": "source_changed", "details": {"column": "canary"}}, "source_changed", {}),
        (
            {"code": "source_changed", "details": {"column": "tree_id", "others": ["canary", "height"]}},
            "source_changed",
            {"column": "tree_id", "others": ["height"]},
        ),
        ({"code": "source_timeout"}, "source_timeout", {}),
        ({"code": "source_unreachable"}, "export_failed", {}),
        ({"code": "storage_refused"}, "export_failed", {}),
        ({"code": "canary\x00"}, "export_failed", {}),
    ],
)
def test_a_failure_has_a_code_of_ours_and_no_word_of_theirs(client, remote, told, code, details) -> None:
    remote.failure = told
    failed = finished(client)
    assert (failed.failed, failed.details) == (code, {"host": "127.0.0.1", **details})


@pytest.mark.parametrize(("asked", "believed"), [(0, 2), (7.5, 7.5), (1e6, 60)])
def test_an_export_is_looked_at_again_within_a_minute_whatever_the_service_says(
    client, remote, asked, believed
) -> None:
    remote.retry_after = asked
    assert client.start(WANTED, fence=7).retry_after == believed


def test_a_file_is_given_as_it_is(client, remote) -> None:
    remote.records = 20_000
    files = finished(client).files
    assert len(files) == len(WANTED.files)
    for file in files:
        content = b"".join(client.read(WANTED.key, file.name))
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file.bytes, file.sha256)


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("500", ServiceAway),
        ("429", ServiceAway),
        ("silent", ServiceAway),
        ("dripping header", ServiceAway),
        ("dripping chunk", ServiceAway),
        ("dripping later", ServiceAway),
        ("continuing", ServiceAway),
        ("cut short", ServiceAway),
        ("lost reply", ServiceAway),
        ("404", FileMismatch),
        ("400", ServiceRefused),
        ("encoded", ServiceRefused),
        ("another part", ServiceRefused),
    ],
)
def test_a_file_that_does_not_come(client, remote, kind, error) -> None:
    finished(client)
    remote.misbehave("file", kind)
    with pytest.raises(error):
        list(
            RemoteDataService(remote.url, TOKEN, timeout=0.5 if kind in {"silent", *DRIPS} else 20).read(
                WANTED.key, "trees.csv"
            )
        )
    assert b"".join(client.read(WANTED.key, "trees.csv"))  # and the connection that broke is no trouble for the next


def test_another_part_than_was_asked_for_is_refused(client, remote) -> None:
    finished(client)
    remote.misbehave("file", "another part")
    with pytest.raises(ServiceRefused) as refused:
        list(client.read(WANTED.key, "trees.csv", 5))
    assert refused.value.details["status"] == "range"


def test_who_takes_long_over_a_piece_has_as_much_time_for_the_next(client, remote) -> None:
    remote.records = 20_000
    finished(client)
    before = set(threading.enumerate())
    pieces = RemoteDataService(remote.url, TOKEN, timeout=0.5).read(WANTED.key, "trees.csv")
    size = len(next(pieces))
    (watch,) = (thread for thread in set(threading.enumerate()) - before if "time-out" in thread.name)
    watch.join(1)  # it would end with its time
    assert size + sum(map(len, pieces)) == len(b"".join(client.read(WANTED.key, "trees.csv")))


def test_a_file_is_read_as_it_comes_and_left_when_it_is_too_long(client, remote) -> None:
    finished(client)
    remote.misbehave("file", "huge")
    pieces = client.read(WANTED.key, "trees.csv")
    assert len(next(pieces)) <= 256 * 1024
    pieces.close()
    assert client.look(WANTED).done


def test_deleting_says_whether_something_still_has_to_stop(client, remote) -> None:
    finished(client)
    remote.misbehave("delete", "accepted")
    assert client.delete(WANTED.key) is False
    assert client.delete(WANTED.key) is True
    remote.misbehave("delete", "404")
    assert client.delete(uuid4()) is True


def test_nobody_there() -> None:
    with pytest.raises(ServiceAway) as away:
        RemoteDataService("http://127.0.0.1:9/v1").look(WANTED)
    assert away.value.details == {"host": "127.0.0.1", "status": "unreachable"}
