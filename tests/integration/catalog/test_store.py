"""The stories of the guarded replace, told to a real Oxigraph server."""

import json
import socket
import threading
import urllib.error
import urllib.request

import pytest
from rdflib import Graph, Literal, URIRef

from chalicelib.catalog.entry import render
from chalicelib.catalog.rdf import ntriples
from chalicelib.catalog.store import FENCE, Held, StoreAway, StoreRefused, _update
from tests.unit.catalog.flights import IRI, definition, facts

OTHERS = ("https://data.example.org/datasets/airports", "https://data.example.org/datasets/planes")
TITLE = URIRef("http://purl.org/dc/terms/title")


def document(version, triples):
    """So many triples that all tell their version."""
    lines = (f'<{IRI}#{number}> <{TITLE}> "{version}" .\n' for number in range(triples))
    return "".join(sorted(lines)).encode()


def ask(oxigraph, query):
    """The rows of a query, each a tuple of texts."""
    request = urllib.request.Request(
        f"{oxigraph.url}/query",
        query.encode(),
        {"Content-Type": "application/sparql-query", "Accept": "application/sparql-results+json"},
    )
    with urllib.request.urlopen(request) as answer:
        told = json.load(answer)
    return [
        tuple(row[name]["value"] for name in told["head"]["vars"] if name in row) for row in told["results"]["bindings"]
    ]


def graphs(oxigraph):
    """Every graph the store lists, an empty one, too."""
    return {name for (name,) in ask(oxigraph, "SELECT ?g WHERE { GRAPH ?g {} }")}


def content(oxigraph, graph):
    """The graph in canonical form, without its fence."""
    query = f"CONSTRUCT {{ ?s ?p ?o }} WHERE {{ GRAPH <{graph}> {{ ?s ?p ?o FILTER (?p != <{FENCE}>) }} }}"
    request = urllib.request.Request(
        f"{oxigraph.url}/query",
        query.encode(),
        {"Content-Type": "application/sparql-query", "Accept": "application/n-triples"},
    )
    with urllib.request.urlopen(request) as answer:
        return ntriples(Graph().parse(data=answer.read(), format="nt")).encode()


def test_OD_39_OD_40_an_entry_comes_back_as_it_was_checked_however_often_it_is_written(oxigraph, store):
    entry = render(definition(), facts())

    for fence in (1, 2):
        store.replace(IRI, entry.ntriples, fence)

        assert store.held(IRI) == Held(fence, entry.triples)
        assert len(content(oxigraph, IRI).splitlines()) == entry.triples
    assert store.ready()


def test_OD_08_texts_and_names_come_back_letter_by_letter(oxigraph, store):
    told = Graph()
    for text in (
        "\\u0022 } } ; DROP ALL #",
        '"} } ; DROP ALL',
        "\\\\U00000022",
        "ä 😀 \t\n\\",
        "%20 <b> ' ''' \"\"\"",
        "{?x}$y",
    ):
        told.add((URIRef("https://ex.org/straße?x=%5B1%5D"), TITLE, Literal(text, lang="de-ch")))
    store.replace(OTHERS[0], document(1, 3), 1)

    store.replace(IRI, ntriples(told).encode(), 1)

    assert content(oxigraph, IRI) == ntriples(told).encode()
    assert store.held(OTHERS[0]) == Held(1, 3)


def test_the_number_that_was_given_last_stands_beside_the_fence_and_outlives_the_entry(oxigraph, store):
    marks = f"SELECT ?s ?fence WHERE {{ GRAPH <{IRI}> {{ ?s <{FENCE}> ?fence FILTER (?s != <{IRI}>) }} }}"
    store.replace(IRI, document(1, 3), 5, 7)
    assert (store.held(IRI), ask(oxigraph, marks)) == (Held(5, 3), [(f"{IRI}/versions/7", "5")])

    store.replace(IRI, document(1, 3), 4, 9)  # a stale one
    assert ask(oxigraph, marks) == [(f"{IRI}/versions/7", "5")]

    store.replace(IRI, b"", 6, 8)
    assert (store.held(IRI), ask(oxigraph, marks)) == (Held(6, 0), [(f"{IRI}/versions/8", "6")])


def test_OD_79_no_other_graph_changes_not_even_where_there_is_none_to_replace(oxigraph, store):
    for other in OTHERS:
        store.replace(other, document(1, 3), 1)
    before = [content(oxigraph, other) for other in OTHERS]

    store.replace(IRI, document(1, 5), 2)
    store.replace(IRI, document(2, 4), 3)
    store.empty(IRI, 4)
    store.empty("https://data.example.org/datasets/missing", 5)

    assert [content(oxigraph, other) for other in OTHERS] == before
    assert [store.held(other) for other in OTHERS] == [Held(1, 3)] * 2


def test_invariant_13_a_stale_fence_leaves_the_graph_alone(oxigraph, store):
    seen = []
    for fence in (1, 2, 5, 3, 5, 6, 4):
        store.replace(IRI, document(fence, 3), fence)
        seen.append(store.held(IRI).fence)

    assert seen == [1, 2, 5, 5, 5, 6, 6]
    assert content(oxigraph, IRI) == document(6, 3)


def test_invariant_13_the_same_fence_never_writes_twice(oxigraph, store):
    store.replace(IRI, document("first", 3), 5)
    store.replace(IRI, document("second", 4), 5)

    assert content(oxigraph, IRI) == document("first", 3)
    assert store.held(IRI) == Held(5, 3)


def test_no_staging_graph_is_left_not_even_an_empty_one(oxigraph, store):
    store.replace(IRI, document(1, 3), 5)
    store.replace(IRI, document(2, 3), 4)
    store.empty(OTHERS[0], 6)

    assert graphs(oxigraph) == {IRI, OTHERS[0]}


def test_a_staging_graph_that_somebody_left_is_no_part_of_the_next_write(oxigraph, store):
    store.replace("urn:leaseway:staging:7", document("left behind", 9), 1)

    store.replace(IRI, document(1, 3), 7)

    assert content(oxigraph, IRI) == document(1, 3)


def test_an_emptied_graph_refuses_the_late_write_of_an_older_claim(oxigraph, store):
    store.replace(IRI, document(1, 3), 1)

    store.empty(IRI, 3)
    store.replace(IRI, document(2, 3), 2)

    assert store.held(IRI) == Held(3, 0)
    store.replace(IRI, document(4, 3), 4)
    assert store.held(IRI) == Held(4, 3)


def test_a_graph_that_was_never_written_holds_nothing(store):
    assert store.held(IRI) == Held(None, 0)


def test_a_graph_into_which_the_store_mixed_two_versions_tells_it_and_is_mended_by_the_next(oxigraph, store):
    store.replace(IRI, document(1, 3), 1)
    _raw_update(
        oxigraph, f'INSERT DATA {{ GRAPH <{IRI}> {{ <{IRI}> <{FENCE}> 2 . <{IRI}#x> <{TITLE}> "2" }} }}'.encode()
    )
    assert store.held(IRI) == Held(2, 4)

    store.replace(IRI, document(3, 3), 3)

    assert store.held(IRI) == Held(3, 3)


def test_OD_81_a_reader_sees_one_whole_version_and_never_none(oxigraph, store):
    sizes = {"odd": 40, "even": 70}
    store.replace(IRI, document("even", sizes["even"]), 1)
    query = f"SELECT ?v (COUNT(*) AS ?n) WHERE {{ GRAPH <{IRI}> {{ ?s <{TITLE}> ?v }} }} GROUP BY ?v"
    seen, done = [], threading.Event()

    def read():
        while not done.is_set():
            seen.append(tuple(ask(oxigraph, query)))

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for fence in range(2, 5_000):  # in the end it fails: a reader that sees one version only proves nothing
            if fence > 201 and len(set(seen)) >= 2 and len(seen) > 50:
                break
            kind = "odd" if fence % 2 else "even"
            store.replace(IRI, document(kind, sizes[kind]), fence)
    finally:
        done.set()
        reader.join()

    assert set(seen) == {((kind, str(size)),) for kind, size in sizes.items()}


@pytest.mark.parametrize("share", [0, 0.2, 0.5, 0.9, 0.999])
def test_OD_82_a_body_that_is_cut_leaves_the_old_graph_whole(oxigraph, store, share):
    store.replace(IRI, document(1, 50), 1)
    body = _update(IRI, document(2, 500), 2).encode()

    with socket.create_connection(("127.0.0.1", oxigraph.port)) as client:
        client.sendall(_head(len(body)) + body[: int(len(body) * share)])
        client.shutdown(socket.SHUT_WR)
        client.recv(1_000)  # whatever it answers, it has seen the end

    assert store.held(IRI) == Held(1, 50)
    assert content(oxigraph, IRI) == document(1, 50)
    assert graphs(oxigraph) == {IRI}


def test_OD_82_a_client_that_dies_before_the_answer_leaves_the_old_graph_or_the_new_one(oxigraph, store):
    store.replace(IRI, document(1, 50), 1)
    body = _update(IRI, document(2, 500), 2).encode()

    with socket.create_connection(("127.0.0.1", oxigraph.port)) as client:
        client.sendall(_head(len(body)) + body)

    store.replace(
        IRI, document(2, 500), 2
    )  # what a worker does that doesn't know: the same again, under the same fence
    assert store.held(IRI) == Held(2, 500)


def test_OD_82_an_update_of_which_the_last_operation_fails_changes_nothing(oxigraph, store):
    store.replace(IRI, document(1, 50), 1)
    failing = _update(IRI, document(2, 500), 2) + "; LOAD <http://127.0.0.1:9/nothing>"

    assert _raw_update(oxigraph, failing.encode()) >= 400

    assert store.held(IRI) == Held(1, 50)
    assert graphs(oxigraph) == {IRI}


def test_OD_87_ten_thousand_triples_arrive(store):
    store.replace(IRI, document(1, 10_001), 1)

    assert store.held(IRI) == Held(1, 10_001)


def test_OD_88_a_store_that_went_away_is_an_error_and_what_it_held_is_there_when_it_is_back(oxigraph, store):
    store.replace(IRI, document(1, 3), 1)
    oxigraph.stop()

    with pytest.raises(StoreAway, match="unreachable"):
        store.replace(IRI, document(2, 3), 2)
    with pytest.raises(StoreAway, match="unreachable"):
        store.held(IRI)
    assert not store.ready()

    oxigraph.start()
    assert store.held(IRI) == Held(1, 3)


def test_OD_88_a_refused_update_is_an_error(oxigraph, store):
    with pytest.raises(StoreRefused, match="4xx"):
        store._send(f"{oxigraph.url}/update", "application/sparql-update", "no update")


def _head(length):
    headers = {"Host": "x", "Content-Type": "application/sparql-update", "Content-Length": length}
    lines = ["POST /update HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
    return "\r\n".join(lines).encode()


def _raw_update(oxigraph, body):
    request = urllib.request.Request(f"{oxigraph.url}/update", body, {"Content-Type": "application/sparql-update"})
    try:
        with urllib.request.urlopen(request) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code
