"""What the catalogue says of itself: applied by an operator, it takes the settings' place everywhere."""

import json

import pytest
from rdflib import DCTERMS, Graph, Literal, URIRef

from chalicelib.settings import settings
from tests.conftest import PUBLIC_URL

from .seeding import call, define, problem, register_source, tokens, written
from .test_rights import CATALOG

ADDRESS = "/internal/catalog"


@pytest.fixture
def ask(http, database):
    """Requests of the operator; one dataset is defined."""
    register_source(database)
    define(database)
    token = tokens(database)["operator"]

    def asking(method, path, body=None):
        return call(http, method, path, token, body)

    return asking


def test_what_is_applied_takes_the_settings_place(ask):
    assert json.loads(ask("GET", ADDRESS).body)["title"] == {"en": "Open data"}

    ask("PUT", ADDRESS, CATALOG | {"title": {"en": "The city's data"}, "licence": "cc-by 4.0"})

    assert json.loads(ask("GET", ADDRESS).body)["licence"] == "CC_BY_4_0"
    graph = Graph().parse(data=ask("GET", "/catalog.nt").body, format="nt")
    own = URIRef(f"{PUBLIC_URL}/catalog")
    assert list(graph.objects(own, DCTERMS.title)) == [Literal("The city's data", lang="en")]
    assert list(graph.objects(own, DCTERMS.license)) == [
        URIRef("http://publications.europa.eu/resource/authority/licence/CC_BY_4_0")
    ]


@pytest.fixture
def unset(environment):
    """A setting of the catalogue is missing from the start."""
    environment.delenv("LEASEWAY_CATALOG_LICENCE")
    settings.cache_clear()


def test_without_settings_an_applied_catalogue_is_enough_to_publish(unset, ask):
    problem(ask("POST", "/datasets/flights/publications"), 409, "catalog_not_configured")
    problem(ask("GET", ADDRESS), 409, "catalog_not_configured")

    ask("PUT", ADDRESS, CATALOG)

    assert ask("POST", "/datasets/flights/publications").status_code == 202


def test_a_dry_run_names_what_would_change_and_changes_nothing(ask, database):
    ask("PUT", ADDRESS, CATALOG)
    before = written(database)

    changed = CATALOG | {"title": {"en": "Data", "de": "Daten"}, "homepage": "https://office.example.org/"}
    answered = json.loads(ask("PUT", f"{ADDRESS}?dry_run=true", changed).body)

    assert answered["changes"] == ["title.en", "title.de", "homepage"]
    assert answered["differences"][1] == {"field": "title.de", "from": None, "to": "Daten"}
    assert json.loads(ask("PUT", f"{ADDRESS}?dry_run=true", CATALOG).body) == {"changes": [], "differences": []}
    assert written(database) == before


def test_faults_are_named_with_the_nearest(ask, database):
    before = written(database)

    refused = problem(
        ask("PUT", ADDRESS, {"titel": {"en": "x"}, **CATALOG, "publisher": {"name": {"en": "x"}}, "licence": "CC-BX"}),
        422,
        "invalid_catalog",
    )

    told = {error["field"]: error["detail"] for error in refused["errors"]}
    assert told["titel"] == "is no field here; did you mean title?"
    assert "Did you mean CC_BY" in told["licence"]
    assert told["publisher.iri"].startswith("is missing")
    assert written(database) == before
