"""The triple store, over the SPARQL 1.1 Protocol: one graph a dataset, replaced under a fence in one request.

Only what Oxigraph, RDF4J and Fuseki were seen to do alike is used: a request of several operations is one transaction;
the body is ASCII (RDF4J reads anything else as ISO-8859-1); nothing is dropped that isn't there (RDF4J 2.5.3 and 3.0.0
wiped every graph then). A store that mixes two concurrent writers can't be told apart by its answer, so a caller holds
the dataset's row lock around ``replace`` and reads ``held`` back under it.
"""

import json
import re
import time
from typing import NamedTuple
from urllib.parse import urlsplit

import urllib3

FENCE = "urn:leaseway:fence"
STAGING = "urn:leaseway:staging:"

# One line of canonical N-Triples. An escape that stands for an ASCII character is let through only where the canonical
# form needs it: SPARQL may unescape before it parses, and \u0022 would then end the literal.
_UNICODE = r"\\u(?!00[0-7])[0-9A-F]{4}|\\U(?!0000)[0-9A-F]{8}"
_IRI = rf"<(?:[!#-;=?-\[\]_a-z~]|{_UNICODE})+>"
_LITERAL = rf'"(?:[ !#-\[\]-~]|\\[tnr"]|\\\\(?![uU])|\\\\\\u00[75]5|{_UNICODE})*"(?:@[a-z0-9-]+|\^\^{_IRI})?'
_LINE = re.compile(rf"{_IRI} {_IRI} (?:{_IRI}|{_LITERAL}) \.")


class StoreAway(Exception):
    """The triple store can't be reached, timed out or failed; whether a write took effect is unknown."""

    def __init__(self, host: str, status: str):
        super().__init__(f"{host}: {status}")
        self.host, self.status = host, status


class StoreRefused(Exception):
    """The triple store answered that it won't: wrong address, rights or request. Trying again changes nothing."""

    def __init__(self, host: str, status: str):
        super().__init__(f"{host}: {status}")
        self.host, self.status = host, status


class Unsafe(Exception):
    """The text isn't canonical N-Triples, so it doesn't become a part of an update."""


class Held(NamedTuple):
    """What a graph holds: the fence it was written under, and how many triples beside it."""

    fence: int | None
    triples: int


class GraphStore:
    """A triple store that is known by its addresses alone. Thread-safe; makes no second try of its own."""

    def __init__(self, update_url: str, query_url: str, auth: str | None = None, timeout: float = 20):
        """``auth`` is ``user:password``; ``timeout`` bounds connecting and the wait for the answer, in seconds."""
        self._update_url, self._query_url = update_url, query_url
        self._headers = urllib3.make_headers(basic_auth=auth) if auth else {}
        self._timeout = timeout
        self._http = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(total=timeout))

    def replace(self, graph: str, ntriples: bytes, fence: int, newest: int = 0) -> None:
        """Make the graph hold exactly these triples, unless it holds this fence or a newer one already.

        Beside the fence stands ``newest``, the highest version number that was given (0: none), for it outlives the
        version, and a restore of the database. One request, one transaction: readers see the old graph or the new one.
        Success doesn't say that it was written: compare ``held``. Raises StoreAway, StoreRefused, Unsafe.
        """
        self._send(self._update_url, "application/sparql-update", _update(graph, ntriples, fence, newest))

    def empty(self, graph: str, fence: int) -> None:
        """As ``replace`` by nothing. The fence stays, so that a late write of an older claim finds it."""
        self.replace(graph, b"", fence)

    def held(self, graph: str) -> Held:
        """The graph's fence (the newest, should a store have mixed two) and the number of its other triples."""
        name = _named(graph)
        answer = self._send(
            self._query_url,
            "application/sparql-query",
            "SELECT ?triples ?fence WHERE { "
            f"{{ SELECT (COUNT(*) AS ?triples) WHERE {{ GRAPH {name} {{ ?s ?p ?o FILTER (?p != <{FENCE}>) }} }} }} "
            f"OPTIONAL {{ GRAPH {name} {{ {name} <{FENCE}> ?fence }} }} }}",
        )
        try:
            rows = json.loads(answer)["results"]["bindings"]
            fences = [int(row["fence"]["value"]) for row in rows if "fence" in row]
            return Held(max(fences, default=None), int(rows[0]["triples"]["value"]))
        except (ValueError, LookupError, TypeError, RecursionError):
            raise StoreRefused(_host(self._query_url), "no SPARQL result") from None

    def mixed(self) -> list[str]:
        """The graphs that hold two fences: two writes came at once, and the store kept both."""
        answer = self._send(
            self._query_url,
            "application/sparql-query",
            f"SELECT DISTINCT ?graph WHERE {{ GRAPH ?graph {{ ?graph <{FENCE}> ?a, ?b FILTER (?a < ?b) }} }}",
        )
        try:
            return [row["graph"]["value"] for row in json.loads(answer)["results"]["bindings"]]
        except (ValueError, LookupError, TypeError, RecursionError):
            raise StoreRefused(_host(self._query_url), "no SPARQL result") from None

    def ready(self) -> bool:
        """Whether the store answers a query."""
        try:
            self._send(self._query_url, "application/sparql-query", "ASK {}")
        except (StoreAway, StoreRefused):
            return False
        return True

    def _send(self, url: str, content_type: str, text: str) -> bytes:
        headers = self._headers | {"Content-Type": content_type, "Accept": "application/sparql-results+json, */*;q=0.1"}
        end = time.monotonic() + self._timeout
        try:
            answer = self._http.request("POST", url, body=text.encode("ascii"), headers=headers, preload_content=False)
            body = bytearray()
            while part := answer.read1():  # what has come: urllib3's time-out is one for each piece
                body += part
                if time.monotonic() > end:
                    answer.close()
                    raise StoreAway(_host(url), "timeout")
            answer.release_conn()
        except urllib3.exceptions.NewConnectionError:  # a refused connection, though its parent class is a time-out
            raise StoreAway(_host(url), "unreachable") from None
        except urllib3.exceptions.TimeoutError:
            raise StoreAway(_host(url), "timeout") from None
        except urllib3.exceptions.HTTPError:
            raise StoreAway(_host(url), "unreachable") from None
        if 200 <= answer.status < 300:
            return bytes(body)
        status = f"{answer.status // 100}xx"
        if answer.status >= 500 or answer.status in {408, 429}:
            raise StoreAway(_host(url), status)
        raise StoreRefused(_host(url), status)


def _update(graph: str, ntriples: bytes, fence: int, newest: int = 0) -> str:
    """Fill the staging graph, delete unless this fence or a newer one is held, insert unless one is held, drop staging.

    In this order because an INSERT template of 10,000 triples overflows RDF4J's stack, and a DELETE/INSERT/WHERE with
    OPTIONAL is a cross product. The last operation may be a DROP: the graph holds at least the fence, and an emptied
    graph would stay listed in Oxigraph.
    """
    name, staging, number = _named(graph), f"<{STAGING}{int(fence)}>", int(fence)
    lines = ntriples.decode("ascii").splitlines()
    if not all(map(_LINE.fullmatch, lines)):
        raise Unsafe
    if newest:
        lines.append(f"{_named(f'{graph}/versions/{int(newest)}')} <{FENCE}> {number} .")
    triples = "\n".join(lines)
    return f"""\
DELETE WHERE {{ GRAPH {staging} {{ ?s ?p ?o }} }} ;
INSERT DATA {{ GRAPH {staging} {{
{triples}
{name} <{FENCE}> {number} .
}} }} ;
DELETE {{ GRAPH {name} {{ ?s ?p ?o }} }}
WHERE {{ GRAPH {name} {{ ?s ?p ?o }}
  FILTER NOT EXISTS {{ GRAPH {name} {{ {name} <{FENCE}> ?held FILTER (?held >= {number}) }} }} }} ;
INSERT {{ GRAPH {name} {{ ?s ?p ?o }} }}
WHERE {{ GRAPH {staging} {{ ?s ?p ?o }}
  FILTER NOT EXISTS {{ GRAPH {name} {{ {name} <{FENCE}> ?held }} }} }} ;
DROP SILENT GRAPH {staging}
"""


def _named(graph: str) -> str:
    name = f"<{graph}>"
    if not re.fullmatch(_IRI, name):
        raise Unsafe
    return name


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""
