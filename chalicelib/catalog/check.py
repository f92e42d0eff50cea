"""The check of an entry: preconditions that SHACL can't say, then the generated shapes through pySHACL.

What is checked are the bytes that will be stored. No network, no inference, fixed options; a validator that breaks is
an exception, never a verdict.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import pyshacl
import rdflib
from rdflib import RDF, SH, XSD, BNode, Graph, Literal, Namespace, URIRef
from rdflib.term import Node

from chalicelib.datasets.dates import is_written_as
from chalicelib.datasets.vocabularies import SNAPSHOT
from chalicelib.iris import LEGAL

from . import rules
from .rdf import PREFIXES, read

DCAT, DCT, FOAF = (Namespace(PREFIXES[name]) for name in ("dcat", "dct", "foaf"))
KEPT = 1_000
"""How many results a report holds; it counts them all. 3,000 bad distributions are 5.7 MB of results."""

_DATES = {XSD[name]: name for name in ("gYear", "gYearMonth", "date", "dateTime")}
_TEXTS = {DCT.title, DCT.description, DCAT.keyword}
_OPTIONS: dict[str, Any] = {
    "inference": "none",
    "advanced": False,
    "js": False,
    "meta_shacl": False,
    "do_owl_imports": False,
    "abort_on_first": False,
}


class CheckBroken(Exception):
    """The validator gave no verdict."""


class Result(NamedTuple):
    """One finding: on which node, along which property, with which value, against which rule.

    ``field`` is the definition's that could say what is only recommended.
    """

    severity: str
    focus: str
    path: str | None
    value: str | None
    rule: str
    message: str
    field: str | None = None


@dataclass(frozen=True)
class Report:
    """The verdict on one document, as data. ``results`` are in a stable order, violations first."""

    document_sha256: str
    results: tuple[Result, ...]

    @property
    def violations(self) -> int:
        """How many results forbid publication."""
        return Counter(result.severity for result in self.results)["Violation"]

    @property
    def warnings(self) -> int:
        """How many results are advice."""
        return len(self.results) - self.violations

    @property
    def broken(self) -> list[str]:
        """Rules that a violation is against, at most ten of them, each once."""
        return list(dict.fromkeys(result.rule for result in self.results if result.severity == "Violation"))[:10]

    @property
    def conforms(self) -> bool:
        """Base tier: no violation; warnings are counted, not judged."""
        return self.violations == 0

    def as_json(self) -> dict[str, Any]:
        """The report to store: what was checked, by which rules and tools, the counts, at most KEPT results."""
        return {
            "profile": {"name": "DCAT-AP", "version": rules.PROFILE_VERSION, "tier": rules.TIER},
            "conforms": self.conforms,
            "violations": self.violations,
            "warnings": self.warnings,
            "results": [result._asdict() for result in self.results[:KEPT]],
            "results_left_out": max(0, len(self.results) - KEPT),
            "document_sha256": self.document_sha256,
            "shapes_sha256": rules.shapes_sha256(),
            "vocabularies": SNAPSHOT,
            "validator": {"pyshacl": pyshacl.__version__, "rdflib": rdflib.__version__, "options": dict(_OPTIONS)},
        }


def check(ntriples: bytes, dataset_iri: str) -> Report:
    """The verdict on an entry in N-Triples. Raises when the document can't be read or the validator breaks."""
    graph, dataset = read(ntriples), URIRef(dataset_iri)
    entry = _reachable(graph, dataset)
    found = [*preconditions(graph, dataset), *(result for node, result in validate(graph) if node in entry)]
    found.sort(key=lambda result: (result.severity != "Violation", *(str(part) for part in result)))
    return Report(hashlib.sha256(ntriples).hexdigest(), tuple(found))


def preconditions(graph: Graph, dataset: URIRef) -> Iterator[Result]:
    """What SHACL doesn't see: shapes pass where there is no typed node to look at, and any lexical form of a year."""

    def breach(rule: str, message: str, focus: Node, path: Node | None = None, value: Node | None = None) -> Result:
        return Result("Violation", str(focus), _shown(path), _shown(value), rule, message)

    if (dataset, RDF.type, DCAT.Dataset) not in graph:
        yield breach("dataset-is-typed", "The dataset's IRI must be a subject of type dcat:Dataset.", dataset)
    for distribution in sorted(graph.objects(None, DCAT.distribution), key=str):
        if (distribution, RDF.type, DCAT.Distribution) not in graph:
            yield breach(
                "distribution-is-typed", "A linked distribution must be typed dcat:Distribution.", distribution
            )
    for triple in sorted(graph, key=lambda triple: tuple(map(str, triple))):
        subject, path, value = triple
        for term in triple:
            if isinstance(term, BNode):
                yield breach("no-blank-node", "Every node must have an IRI.", subject, path)
            elif isinstance(term, URIRef) and not LEGAL.fullmatch(term):
                yield breach("iri-is-legal", "The IRI holds characters that no IRI may.", subject, path, term)
        if path in {DCAT.accessURL, DCAT.downloadURL} and value == dataset:
            yield breach(
                "address-is-not-the-dataset", "A file's address must differ from the dataset's IRI.", subject, path
            )
        if not isinstance(value, Literal):
            continue
        if not value.strip():
            yield breach("text-says-something", "The text is empty.", subject, path, value)
        if path in _TEXTS and not value.language:
            yield breach("text-has-a-language", "The text must carry a language tag.", subject, path, value)
        if value.ill_typed or (value.datatype in _DATES and not is_written_as(_DATES[value.datatype], value)):
            yield breach("value-is-of-its-type", "The text isn't a value of its datatype.", subject, path, value)


def validate(graph: Graph) -> Iterator[tuple[Node, Result]]:
    """The results of the generated shapes on the whole graph, each with its focus node; raises CheckBroken."""
    _, report, _ = pyshacl.validate(graph, shacl_graph=_shapes(), allow_warnings=True, **_OPTIONS)
    if not isinstance(report, Graph):
        raise CheckBroken(type(report).__name__)
    top = report.value(None, RDF.type, SH.ValidationReport)
    if top is None or report.value(top, SH.conforms) is None:
        raise CheckBroken("no report")
    for node in report.objects(top, SH.result):  # only these: nested details default to Violation
        yield _result(report, node)


def _result(report: Graph, node: Node) -> tuple[Node, Result]:
    def of(predicate: URIRef) -> Node | None:
        return report.value(node, predicate)

    focus, path, value = of(SH.focusNode), of(SH.resultPath), of(SH.value)
    if focus is None:
        raise CheckBroken("a result without a focus node")
    component = str(of(SH.sourceConstraintComponent)).rpartition("#")[2].removesuffix("ConstraintComponent")
    rule = str(of(SH.sourceShape)).removeprefix(rules.SHAPE)
    return focus, Result(
        severity=str(of(SH.resultSeverity)).rpartition("#")[2],
        focus=str(focus),
        path=str(path) if isinstance(path, URIRef) else None,
        value=_shown(value),
        rule=f"{rule} {component}",
        message=str(of(SH.resultMessage) or "")[:200],
        field=rules.fields().get(rule),
    )


def _reachable(graph: Graph, dataset: URIRef) -> set[Node]:
    """The dataset, what it leads to, and its record: a result about anything else isn't this dataset's fault."""
    todo: list[Node] = [dataset, *graph.subjects(FOAF.primaryTopic, dataset)]
    seen: set[Node] = set()
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += _targets(graph.objects(node))
    return seen


def _targets(nodes: Iterable[Node]) -> list[Node]:
    return [node for node in nodes if not isinstance(node, Literal)]


def _shown(value: Node | None) -> str | None:
    return None if value is None else str(value)[:200]


@cache
def _shapes() -> Graph:
    return Graph().parse(data=rules.shapes(), format="turtle")
