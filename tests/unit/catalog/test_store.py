import socket
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from chalicelib.catalog.entry import render
from chalicelib.catalog.store import GraphStore, StoreAway, StoreRefused, Unsafe
from tests.unit.catalog.flights import IRI, definition, facts

ENTRY = render(definition(), facts()).ntriples


@pytest.fixture
def server():
    """A store that answers what it is told to and remembers what it was sent."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.asked.append((self.path, self.headers, body))
            status, answer = self.server.answer
            parts = answer if isinstance(answer, list) else [answer]
            self.send_response(status)
            self.send_header("Content-Length", str(sum(map(len, parts))))
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            for part in parts:
                self.wfile.write(part)
                self.server.pause.wait(0.02 if len(parts) > 1 else 0)

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as running:
        running.asked, running.answer, running.pause = [], (204, b""), threading.Event()
        running.handle_error = lambda *_: None  # a caller that has hung up
        thread = threading.Thread(target=running.serve_forever, args=(0.001,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def store(server, **more):
    url = f"http://127.0.0.1:{server.server_port}"
    return GraphStore(f"{url}/update", f"{url}/query", **more)


def test_a_replace_is_one_ASCII_request_that_every_store_reads_alike(server):
    store(server, auth="me:secret").replace(IRI, ENTRY, 7)

    [(path, headers, body)] = server.asked
    assert path == "/update"
    assert headers["Content-Type"] == "application/sparql-update"
    assert headers["Authorization"] == "Basic bWU6c2VjcmV0"
    assert body.isascii()
    assert ENTRY.strip() in body
    assert b"<urn:leaseway:staging:7>" in body


@pytest.mark.parametrize("status", [500, 502, 503, 429])
def test_OD_88_a_store_that_fails_is_away(server, status):
    server.answer = (status, b"secret text of the store")

    with pytest.raises(StoreAway) as failure:
        store(server).replace(IRI, ENTRY, 7)

    assert (failure.value.host, failure.value.status) == ("127.0.0.1", f"{status // 100}xx")
    assert len(server.asked) == 1  # the caller decides about a second try
    assert not store(server).ready()


@pytest.mark.parametrize("status", [301, 400, 401, 404, 413])
def test_OD_88_a_store_that_says_no_is_not_asked_again(server, status):
    server.answer = (status, b"")

    with pytest.raises(StoreRefused) as failure:
        store(server).replace(IRI, ENTRY, 7)

    assert failure.value.status == f"{status // 100}xx"
    assert len(server.asked) == 1


@pytest.mark.parametrize("answer", [b"", b"<html>", b"{}", b'{"results": {"bindings": []}}', b"[]", 100_000 * b"["])
def test_an_answer_that_is_no_SPARQL_result_says_nothing_about_the_graph(server, answer):
    server.answer = (200, answer)

    with pytest.raises(StoreRefused):
        store(server).held(IRI)


def test_a_store_that_doesn_t_answer_in_time_is_away():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/update"

        with pytest.raises(StoreAway, match="timeout"):
            GraphStore(url, url, timeout=0.05).replace(IRI, ENTRY, 7)


def test_a_store_that_gives_its_answer_bit_by_bit_is_away_at_its_time_out(server):
    server.answer = (200, 100 * [b" "])

    with pytest.raises(StoreAway, match="timeout"):
        store(server, timeout=0.1).held(IRI)
    server.pause.set()


def test_a_store_that_isn_t_there_is_away():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}/update"

    with pytest.raises(StoreAway, match="unreachable"):
        GraphStore(url, url).replace(IRI, ENTRY, 7)
    assert not GraphStore(url, url).ready()


@pytest.mark.parametrize(
    "line",
    [
        '<urn:a> <urn:b> "x" } } ; DROP ALL ; INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> "y" .',
        '<urn:a> <urn:b> "x\\u0022 . <urn:evil> <urn:p> \\u0022" .',  # unescaped before it is parsed, it ends the text
        '<urn:a> <urn:b> "\\\\u0022 . <urn:evil> <urn:p> " .',
        "<urn:a> <urn:b> <urn:c\\u003E . <urn:evil> <urn:p> <urn:o> .",
        "<urn:a> <urn:b> <urn:c d> .",
        "<urn:a> <urn:b> _:c .",
        "_:a <urn:b> <urn:c> .",
        '<urn:a> <urn:b> "ü" .',
        "<urn:a> <urn:b> <urn:c> . <urn:a> <urn:b> <urn:d> .",
        "# a comment",
        "<urn:a> <urn:b> ?c .",
    ],
)
def test_OD_08_what_isn_t_canonical_never_becomes_a_part_of_an_update(server, line):
    with pytest.raises((Unsafe, UnicodeDecodeError)):
        store(server).replace(IRI, line.encode() + b"\n", 7)

    assert server.asked == []


@pytest.mark.parametrize("graph", ["x> { } } ; DROP ALL #", "https://ex.org/a b", "", "https://ex.org/straße"])
def test_OD_08_a_graph_s_name_is_an_IRI(server, graph):
    for act in (lambda: store(server).replace(graph, b"", 7), lambda: store(server).held(graph)):
        with pytest.raises(Unsafe):
            act()

    assert server.asked == []
