"""RDF in and out, in one spelling: the canonical form is sorted ASCII N-Triples without blank nodes.

rdflib's own writers give other bytes in each process, and its RDF/XML and JSON-LD let broken IRIs and unparseable
characters through. These here write the same bytes always and refuse what a reader couldn't take. Each format has a
fixed head and tail, so that a catalogue is its entries' bodies one after the other.
"""

import json
import logging
import re
from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple
from xml.sax.saxutils import escape, quoteattr

import rdflib
from rdflib import RDF, XSD, Graph, Literal, URIRef
from rdflib.term import Node

from chalicelib.iris import LEGAL

# rdflib logs each ill-typed literal with its text and a traceback; the report says it better, and logs hold no content.
logging.getLogger("rdflib.term").setLevel(logging.CRITICAL)

PREFIXES = {
    "adms": "http://www.w3.org/ns/adms#",
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcatap": "http://data.europa.eu/r5r/",
    "dct": "http://purl.org/dc/terms/",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "rdf": "http://www.w3.org/1999/02/22-rdf-syntax-ns#",
    "spdx": "http://spdx.org/rdf/terms#",
    "vcard": "http://www.w3.org/2006/vcard/ns#",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}

_LOCAL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_UNWRITABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")


class Unwritable(Exception):
    """A term that would make a file nobody can read: a broken IRI, a control character, a predicate without a name."""


class Form(NamedTuple):
    """What stands before, between and after the bodies of a format."""

    head: str
    joint: str
    tail: str


FORMS = {
    "nt": Form("", "", ""),
    "ttl": Form("".join(f"@prefix {name}: <{iri}> .\n" for name, iri in PREFIXES.items()) + "\n", "\n", ""),
    "rdf": Form(
        '<?xml version="1.0" encoding="UTF-8"?>\n<rdf:RDF'
        + "".join(f'\n    xmlns:{name}="{iri}"' for name, iri in PREFIXES.items())
        + ">\n",
        "",
        "</rdf:RDF>\n",
    ),
    "jsonld": Form('{"@context": ' + json.dumps(PREFIXES, indent=2) + ',\n"@graph": [\n', ",\n", "\n]}\n"),
}


def read(ntriples: bytes) -> Graph:
    """The graph that N-Triples hold, each literal as it is written."""
    # Else "…Z" becomes "…+00:00", another term with another hash. Set anew each time: pySHACL's end turns it on again.
    rdflib.NORMALIZE_LITERALS = False
    graph = Graph()
    graph.parse(data=ntriples, format="nt")
    return graph


def typed(text: str, datatype: URIRef) -> Literal:
    """A literal of a datatype, as it is written."""
    return Literal(text, datatype=datatype, normalize=False)


def documents(graph: Graph) -> dict[str, str]:
    """The graph in every format: nt (the canonical form), ttl, rdf and jsonld."""
    bodies = {"nt": ntriples(graph), "ttl": _turtle(graph), "rdf": _rdf_xml(graph), "jsonld": _json_ld(graph)}
    return {name: FORMS[name].head + body + FORMS[name].tail for name, body in bodies.items()}


def ntriples(graph: Graph) -> str:
    """The canonical form: one triple a line, sorted, ASCII with escapes; raises Unwritable."""
    return "".join(sorted(f"{_nt(s)} {_nt(p)} {_nt(o)} .\n" for s, p, o in graph))


def _nt(term: Node) -> str:
    if isinstance(term, URIRef):
        return f"<{_ascii(_iri(term))}>"
    literal = _literal(term)
    text = (
        literal.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    # An escaped backslash followed by a plain u reads as a code point where SPARQL is unescaped before it is parsed.
    text = re.sub(r"(?<=\\\\)[uU]", lambda match: f"\\u{ord(match.group()):04X}", text)
    if literal.language:
        return f'"{_ascii(text)}"@{literal.language}'
    if literal.datatype and literal.datatype != XSD.string:
        return f'"{_ascii(text)}"^^<{_ascii(_iri(literal.datatype))}>'
    return f'"{_ascii(text)}"'


def _ascii(text: str) -> str:
    return re.sub(
        r"[^\x00-\x7e]",
        lambda match: f"\\u{ord(match.group()):04X}" if match.group() <= "\uffff" else f"\\U{ord(match.group()):08X}",
        text,
    )


def _iri(term: Node) -> str:
    if not isinstance(term, URIRef) or not LEGAL.fullmatch(term):
        raise Unwritable(f"no legal IRI: {str(term)[:80]!r}")
    return str(term)


def _literal(term: Node) -> Literal:
    if not isinstance(term, Literal):
        raise Unwritable(f"neither an IRI nor a literal: {type(term).__name__}")
    if found := _UNWRITABLE.search(term):
        raise Unwritable(f"the character U+{ord(found.group()):04X} in a text")
    return term


def _name(predicate: Node) -> str:
    """The predicate as prefix and local name; a split anywhere else would be another predicate on reading."""
    iri = _iri(predicate)
    for prefix, namespace in PREFIXES.items():
        if iri.startswith(namespace) and _LOCAL_NAME.fullmatch(iri.removeprefix(namespace)):
            return f"{prefix}:{iri.removeprefix(namespace)}"
    raise Unwritable(f"no name in a namespace of the catalogue: {iri[:80]!r}")


type Properties = list[tuple[str, list[Node]]]


def _nodes(graph: Graph) -> Iterable[tuple[str, Properties]]:
    """Subjects with their properties in canonical order, rdf:type first."""
    triples = sorted(graph, key=lambda triple: (str(triple[0]), triple[1] != RDF.type, _nt(triple[1]), _nt(triple[2])))
    for subject, about in groupby(triples, key=lambda triple: triple[0]):
        by_predicate = groupby(about, key=lambda triple: triple[1])
        yield _iri(subject), [(_name(predicate), [o for _, _, o in values]) for predicate, values in by_predicate]


def _turtle(graph: Graph) -> str:
    nodes = []
    for subject, properties in _nodes(graph):
        lines = []
        for name, values in properties:
            objects = " ,\n        ".join(_turtle_value(name, value) for value in values)
            lines.append(f"{'a' if name == 'rdf:type' else name} {objects}")
        nodes.append(f"<{subject}>\n    " + " ;\n    ".join(lines) + " .\n")
    return "\n".join(nodes)


def _turtle_value(name: str, value: Node) -> str:
    if isinstance(value, URIRef):
        return _name(value) if name == "rdf:type" else f"<{_iri(value)}>"
    literal = _literal(value)
    text = (
        literal.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    )
    if literal.language:
        return f'"{text}"@{literal.language}'
    return f'"{text}"' + (f"^^{_name(literal.datatype)}" if literal.datatype else "")


def _rdf_xml(graph: Graph) -> str:
    lines = []
    for subject, properties in _nodes(graph):
        lines.append(f"  <rdf:Description rdf:about={quoteattr(subject)}>")
        lines += [f"    {_element(name, value)}" for name, values in properties for value in values]
        lines.append("  </rdf:Description>")
    return "".join(f"{line}\n" for line in lines)


def _element(name: str, value: Node) -> str:
    if isinstance(value, URIRef):
        return f"<{name} rdf:resource={quoteattr(_iri(value))}/>"
    literal = _literal(value)
    kind = f' xml:lang="{literal.language}"' if literal.language else ""
    if literal.datatype:
        kind = f" rdf:datatype={quoteattr(_iri(literal.datatype))}"
    return f"<{name}{kind}>{escape(literal, {'\r': '&#13;'})}</{name}>"


def _json_ld(graph: Graph) -> str:
    nodes = []
    for subject, properties in _nodes(graph):
        node: dict[str, object] = {"@id": subject}
        for name, values in properties:
            if name == "rdf:type":
                node["@type"] = [_name(value) for value in values]
            else:
                node[name] = [_json_value(value) for value in values]
        nodes.append(json.dumps(node, ensure_ascii=False, indent=2))
    return ",\n".join(nodes)


def _json_value(value: Node) -> dict[str, str]:
    if isinstance(value, URIRef):
        return {"@id": _iri(value)}
    literal = _literal(value)
    if literal.language:
        return {"@value": str(literal), "@language": literal.language}
    return {"@value": str(literal)} | ({"@type": _name(literal.datatype)} if literal.datatype else {})
