"""What everyone may read: entries, versions, files, the catalogue; without a token, from every origin."""

import base64
import json
from urllib.parse import parse_qs, urlsplit

import pytest
import rdflib

from chalicelib import pipelines
from chalicelib.settings import load
from tests.conftest import PUBLIC_URL

from .seeding import SHA, call, define, problem, publish, register_source

TITLE = (
    rdflib.URIRef(f"{PUBLIC_URL}/datasets/flights"),
    rdflib.DCTERMS.title,
    rdflib.Literal("Flüge", lang="de"),
)
PARSERS = {"ttl": "turtle", "jsonld": "json-ld", "rdf": "xml", "nt": "nt"}


@pytest.fixture
def get(http, database, engine, clock):
    """Requests of anybody; flights is published."""
    register_source(database)
    define(database)
    publish(database, engine, clock)

    def asking(path, method="GET", **headers):
        return call(http, method, path, **headers)

    return asking


def triples(answered, form):
    return set(rdflib.Graph().parse(data=answered.body, format=PARSERS[form]))


@pytest.mark.parametrize(
    ("accept", "media_type", "form"),
    [
        (None, "text/turtle; charset=utf-8", "ttl"),
        ("*/*", "text/turtle; charset=utf-8", "ttl"),
        ("text/turtle;q=0.5, application/ld+json", "application/ld+json", "jsonld"),
        ("application/json", "application/json", "jsonld"),
        ("application/rdf+xml", "application/rdf+xml", "rdf"),
        ("application/n-triples", "application/n-triples", "nt"),
    ],
)
@pytest.mark.parametrize("path", ["/datasets/flights", "/datasets/flights/versions/1", "/catalog"])
def test_rdf_comes_as_the_reader_wants_it(get, path, accept, media_type, form):
    if path.endswith("versions/1") and accept == "application/json":
        return
    answered = get(path, **({"accept": accept} if accept else {}))

    assert answered.status_code == 200
    assert answered.headers["Content-Type"] == media_type
    assert answered.headers["Vary"] == "Accept"
    assert answered.headers["Content-Location"] == f"{PUBLIC_URL}{path}.{form}"
    assert TITLE in triples(answered, form)


@pytest.mark.parametrize("form", PARSERS)
@pytest.mark.parametrize("path", ["/datasets/flights", "/datasets/flights/versions/1", "/catalog"])
def test_a_suffix_wins_over_the_accept_header(get, path, form):
    answered = get(f"{path}.{form}", accept="image/png")

    assert answered.status_code == 200
    assert TITLE in triples(answered, form)


def test_what_isnt_offered_is_not_acceptable(get):
    answered = get("/datasets/flights", accept="image/png")

    problem(answered, 406, "not_acceptable")
    assert answered.headers["Vary"] == "Accept"
    assert answered.headers["Access-Control-Allow-Origin"] == "*"


@pytest.mark.parametrize("path", ["/datasets/flights", "/catalog", "/datasets/flights/versions/1.nt"])
def test_who_has_it_already_gets_304(get, path):
    first = get(path)
    again = get(path, if_none_match=f'"x", W/{first.headers["Etag"]}')

    assert (again.status_code, again.body) == (304, b"")
    assert again.headers["Etag"] == first.headers["Etag"]
    assert get(path, if_none_match='"x"').status_code == 200
    assert get(path, accept="application/ld+json").headers["Etag"] != first.headers["Etag"] or path.endswith(".nt")


@pytest.mark.parametrize("path", ["/datasets/flights", "/catalog", "/datasets/flights/files/flights.csv-metadata.json"])
def test_who_wants_only_what_it_was_gets_412_once_it_is_another(get, path):
    etag = get(path).headers["Etag"]

    for matching in (etag, f'"x", {etag}', "*"):
        assert get(path, if_match=matching).status_code == 200
    assert get(path, if_match=etag, if_none_match=etag).status_code == 304
    for another in ('"x"', f"W/{etag}"):  # a weak one is never the same
        problem(get(path, if_match=another, if_none_match=etag), 412, "precondition_failed", "If-Match")


def test_an_entry_is_asked_for_each_time_for_it_may_be_withdrawn(get):
    assert "no-cache" in get("/datasets/flights/versions/1").headers["Cache-Control"]
    assert "no-cache" in get("/datasets/flights").headers["Cache-Control"]
    assert "no-cache" in get("/catalog").headers["Cache-Control"]


def test_the_record_of_a_version_is_json(get):
    record = json.loads(get("/datasets/flights/versions/1", accept="application/json").body)

    assert record["version"] == 1
    assert record["issued_at"] == "2026-03-02T09:00:00.000Z"
    assert record["current"] is True
    assert record["files"][0] == {
        "name": "flights.csv",
        "format": "csv",
        "media_type": "text/csv",
        "bytes": 1234,
        "sha256": SHA,
        "url": f"{PUBLIC_URL}/datasets/flights/versions/1/files/flights.csv",
    }
    assert json.loads(get("/datasets/flights/versions").body)["versions"] == [record]


def test_a_version_stays_when_a_newer_one_comes(get, database, engine, clock):
    before = get("/datasets/flights/versions/1.ttl").body
    publish(database, engine, clock)

    assert get("/datasets/flights/versions/1.ttl").body == before
    versions = json.loads(get("/datasets/flights/versions").body)["versions"]
    assert [(v["version"], v["current"]) for v in versions] == [(2, True), (1, False)]
    old, new, current = (
        get(f"/datasets/flights/{path}files/flights.csv").headers["Location"].partition("?")[0]
        for path in ("versions/1/", "versions/2/", "")
    )
    assert old.endswith("/exports/1/csv")
    assert new.endswith("/exports/2/csv")
    assert current == new


def test_a_withdrawn_version_is_gone(get, database):
    database.run("update dataset.version set withdrawn_at = issued_at")
    database.run("update dataset.dataset set current_version = null")

    problem(get("/datasets/flights/versions/1"), 410, "gone")
    problem(get("/datasets/flights/versions/1/files/flights.csv"), 410, "gone")
    problem(get("/datasets/flights"), 410, "gone")
    problem(get("/datasets/flights/files/flights.csv"), 410, "gone")
    assert json.loads(get("/datasets/flights/versions").body)["versions"][0]["files"] == []


@pytest.mark.parametrize("path", ["/datasets/flights/versions/1/files", "/datasets/flights/files"])
def test_a_file_is_fetched_by_a_presigned_address_of_five_minutes(get, path):
    answered = get(f"{path}/flights.csv")

    address = urlsplit(answered.headers["Location"])
    asked = parse_qs(address.query)
    assert answered.status_code == 307
    assert address.netloc == "localhost:4001"
    assert address.path == "/leaseway-files/exports/1/csv"
    assert asked["X-Amz-Expires"] == ["300"]
    assert asked["response-content-disposition"] == ['attachment; filename="flights.csv"']
    assert asked["response-content-type"] == ["text/csv"]
    assert "immutable" not in answered.headers["Cache-Control"]


@pytest.mark.parametrize("path", ["/datasets/flights/versions/1/files", "/datasets/flights/files"])
def test_head_of_a_file_answers_by_itself(get, path):
    answered = get(f"{path}/flights.json", "HEAD")

    assert (answered.status_code, answered.body) == (200, b"")
    assert answered.headers["Content-Length"] == "1234"
    assert answered.headers["Content-Type"] == "application/json"
    assert answered.headers["Last-Modified"] == "Mon, 02 Mar 2026 09:00:00 GMT"
    assert answered.headers["Repr-Digest"] == f"sha-256=:{base64.b64encode(bytes.fromhex(SHA)).decode()}:"
    assert answered.headers["Etag"] == f'"{SHA}"'
    assert "Location" not in answered.headers


def test_head_of_a_document_is_its_get_without_a_body(get):
    full, head = get("/catalog"), get("/catalog", "HEAD")

    assert (head.status_code, head.body) == (200, b"")
    assert head.headers == full.headers


@pytest.mark.parametrize(
    "path",
    [
        "/datasets/unknown",
        "/datasets/flights.csv",
        "/datasets/flights.ttl.ttl",
        "/datasets/flights.",
        "/datasets/Flights",
        "/datasets/%66lights",
        "/datasets/flüge",
        "/datasets/..",
        "/datasets/flights%00",
        f"/datasets/{'a' * 5000}",
        "/datasets/unknown/versions",
        "/datasets/flights/versions/2",
        "/datasets/flights/versions/0",
        "/datasets/flights/versions/1.csv",
        "/datasets/flights/versions/99999999999999999999",
        "/datasets/flights/versions/1/files/flights.pdf",
        "/datasets/flights/versions/1/files/roads.csv",
        "/datasets/flights/versions/1/files/..",
        "/datasets/flights/files/flights.CSV",
    ],
)
def test_what_doesnt_exist_is_not_found_whatever_it_is_called(get, path):
    problem(get(path), 404, "not_found")
    assert get(path, "HEAD").body == b""


def test_an_unpublished_dataset_is_as_unknown_as_any_other(get, database):
    define(database, "secret-plans")

    assert get("/datasets/secret-plans").body == get("/datasets/unknown").body


def test_a_catalogue_without_its_settings_says_so(get, environment, database, engine):
    environment.delenv("LEASEWAY_CATALOG_LICENCE")
    bare = pipelines.Context(load(), database, engine)
    environment.setattr(pipelines, "context", lambda: bare)

    problem(get("/catalog"), 409, "catalog_not_configured")


def test_links_to_public_addresses_may_carry_what_others_add(get):
    assert get("/datasets/flights?utm_source=x&fbclid=1").status_code == 200


def test_addresses_are_those_of_public_url_whatever_the_host_header_says(get):
    answered = get("/datasets/flights/versions/1", accept="application/json", host="evil.example.org")

    assert b"evil" not in answered.body


@pytest.mark.parametrize(
    "path",
    ["/catalog", "/datasets/flights/versions/1/files/flights.csv", "/health", "/datasets/unheard-of", "/schedules"],
)
def test_no_browser_guesses_what_an_answer_is(http, office, path):
    assert call(http, "GET", path).headers["X-Content-Type-Options"] == "nosniff"


# What describes files

BESIDE = [
    ("flights.csv-metadata.json", "application/csvm+json"),
    ("flights.schema.json", "application/schema+json"),
]


@pytest.mark.parametrize("at", ["/datasets/flights/versions/1/files", "/datasets/flights/files"])
@pytest.mark.parametrize(("name", "media_type"), BESIDE)
def test_beside_a_file_stands_what_describes_it(get, at, name, media_type):
    answered = get(f"{at}/{name}")

    assert answered.status_code == 200
    assert answered.headers["Content-Type"] == f"{media_type}; charset=utf-8"
    said = json.loads(answered.body)
    columns = said["tableSchema"]["columns"] if "tableSchema" in said else said["$defs"]["record"]["properties"]
    assert len(columns) == 2
    head = get(f"{at}/{name}", "HEAD")
    assert (head.body, head.headers["Etag"]) == (b"", answered.headers["Etag"])
    assert get(f"{at}/{name}", **{"if-none-match": head.headers["Etag"]}).status_code == 304


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_a_csv_leads_to_its_metadata(get, method):
    answered = get("/datasets/flights/versions/1/files/flights.csv", method)

    assert answered.headers["Link"] == '<flights.csv-metadata.json>; rel="describedby"; type="application/csvm+json"'
    assert "Link" not in get("/datasets/flights/versions/1/files/flights.json", method).headers


def test_a_schema_names_itself_by_its_version(get):
    said = json.loads(get("/datasets/flights/files/flights.schema.json").body)

    assert said["$id"] == f"{PUBLIC_URL}/datasets/flights/versions/1/files/flights.schema.json"
