import json

import pytest
from rdflib import RDF, Graph, URIRef

from chalicelib.catalog.document import Entry, catalog_document
from chalicelib.catalog.entry import DCAT, render
from chalicelib.catalog.rdf import FORMS
from chalicelib.datasets.catalog import Catalog
from tests.unit.catalog.flights import BASE, IRI, definition, facts

CATALOG = Catalog.parse(
    {
        "title": {"en": "Open data", "de": "Offene Daten"},
        "description": {"en": "All we publish.", "de": "Alles, was wir veröffentlichen."},
        "publisher": {"name": {"en": "Office for Open Data"}, "iri": "https://office.example.org/id"},
        "licence": "CC0",
        "homepage": "https://office.example.org/",
    }
)
PARSERS = {"nt": "nt", "ttl": "turtle", "rdf": "xml", "jsonld": "json-ld"}


def entry(name):
    told = facts(dataset_id=name)
    return Entry(told.dataset_iri, render(definition(), told).documents)


def parsed(document, name):
    return Graph().parse(data=document, format=PARSERS[name])


@pytest.mark.parametrize("name", PARSERS)
def test_the_catalogue_is_the_same_in_every_format(name):
    document = catalog_document(BASE, CATALOG, [entry("flights"), entry("airports")], name)

    expected = parsed(catalog_document(BASE, CATALOG, [entry("flights"), entry("airports")], "nt"), "nt")
    assert set(parsed(document, name)) == set(expected)
    assert set(expected.objects(URIRef(f"{BASE}/catalog"), DCAT.dataset)) == {
        URIRef(IRI),
        URIRef(f"{BASE}/datasets/airports"),
    }


@pytest.mark.parametrize("name", PARSERS)
def test_the_order_of_the_entries_is_the_order_of_their_IRIs(name):
    entries = [entry("flights"), entry("airports")]

    assert catalog_document(BASE, CATALOG, entries, name) == catalog_document(BASE, CATALOG, reversed(entries), name)


@pytest.mark.parametrize("name", PARSERS)
def test_an_empty_catalogue_is_a_document_too(name):
    document = catalog_document(BASE, CATALOG, [], name)

    assert list(parsed(document, name).subjects(RDF.type, DCAT.Catalog)) == [URIRef(f"{BASE}/catalog")]


@pytest.mark.parametrize("name", ["ttl", "rdf", "jsonld"])
def test_an_entry_that_was_stored_with_another_head_is_made_anew(name):
    old = entry("flights")
    other = {"ttl": "@prefix a: <urn:a> .\n", "rdf": '<?xml version="1.0"?><r/>', "jsonld": "[]"}

    document = catalog_document(BASE, CATALOG, [Entry(old.iri, {**old.documents, name: other[name]})], name)

    assert document == catalog_document(BASE, CATALOG, [old], name)


def test_a_stored_entry_is_taken_as_it_is_and_not_read_again(monkeypatch):
    stored = entry("flights")
    monkeypatch.setattr("chalicelib.catalog.document.read", None)

    document = catalog_document(BASE, CATALOG, [stored], "ttl").decode()

    assert stored.documents["ttl"].removeprefix(FORMS["ttl"].head) in document


def test_the_JSON_LD_is_one_graph_with_one_context():
    told = json.loads(catalog_document(BASE, CATALOG, [entry("flights")], "jsonld"))

    assert told.keys() == {"@context", "@graph"}
    assert f"{BASE}/catalog" in {node["@id"] for node in told["@graph"]}
