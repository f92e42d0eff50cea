"""The catalogue as one document: its own description, then the stored documents of its entries, one after the other."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from rdflib import RDF, Graph, Literal, URIRef

from chalicelib.datasets import vocabularies as eu
from chalicelib.datasets.catalog import Catalog

from .entry import DCAT, DCT, FOAF, listed, say_agent
from .rdf import FORMS, documents, read


class Entry(NamedTuple):
    """A dataset of the catalogue: its IRI and its current version's stored documents by name."""

    iri: str
    documents: Mapping[str, str]


def catalog_document(base_url: str, catalog: Catalog, entries: Iterable[Entry], name: str) -> bytes:
    """The whole catalogue as ``name`` (ttl, jsonld, rdf or nt), in UTF-8, entries in the order of their IRIs.

    ``base_url`` is PUBLIC_URL; ``catalog`` is what the catalogue says of itself.
    A stored document is taken as it is, without its head and tail; only one that was written with another head is
    made anew from its canonical form.
    """
    ordered = sorted(entries, key=lambda entry: entry.iri)
    own = documents(_description(URIRef(f"{base_url}/catalog"), catalog, [entry.iri for entry in ordered]))
    form = FORMS[name]
    bodies = [_body(each, name) for each in (own, *(entry.documents for entry in ordered))]
    return (form.head + form.joint.join(bodies) + form.tail).encode()


def _body(stored: Mapping[str, str], name: str) -> str:
    head, _, tail = FORMS[name]
    document = stored[name]
    if not (document.startswith(head) and document.endswith(tail)):
        document = documents(read(stored["nt"].encode("ascii")))[name]
    return document[len(head) : len(document) - len(tail)]


def _description(iri: URIRef, catalog: Catalog, datasets: list[str]) -> Graph:
    graph, publisher = Graph(), URIRef(catalog.publisher.iri)
    graph.add((iri, RDF.type, DCAT.Catalog))
    for predicate, texts in ((DCT.title, catalog.title), (DCT.description, catalog.description)):
        for tag, text in texts.items():
            graph.add((iri, predicate, Literal(text, lang=tag)))
    graph.add((iri, DCT.publisher, publisher))
    say_agent(graph, publisher, catalog.publisher)
    graph.add((iri, DCT.license, listed(eu.LICENCES, catalog.licence)))
    graph.add((iri, FOAF.homepage, URIRef(catalog.homepage)))
    graph.add((iri, DCAT.themeTaxonomy, URIRef(f"{eu.AUTHORITY}data-theme")))
    for dataset in datasets:
        graph.add((iri, DCAT.dataset, URIRef(dataset)))
        graph.add((iri, DCAT.record, URIRef(f"{dataset}#record")))
    return graph
