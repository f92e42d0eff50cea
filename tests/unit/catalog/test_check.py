import json
import re
import socket
from collections import Counter
from functools import cache

import pyshacl
import pytest
from rdflib import OWL, RDF, SH, XSD, BNode, Graph, Literal, URIRef
from rdflib.util import from_n3

from chalicelib.catalog import check as checking
from chalicelib.catalog import rules
from chalicelib.catalog.check import KEPT, CheckBroken, Report, Result, check, validate
from chalicelib.catalog.entry import ADMS, DCAT, DCT, SPDX, render
from chalicelib.catalog.rdf import PREFIXES, ntriples, read, typed
from tests.unit.catalog.flights import IRI, definition, facts

DATASET, CSV = URIRef(IRI), URIRef(f"{IRI}#csv")
EU = "http://publications.europa.eu/resource/authority/"


@cache
def entry():
    return read(render(definition(), facts()).ntriples)


def changed(subject, predicate, *values, instead=True):
    """The flights' entry with other values for one property."""
    graph = Graph() + entry()
    if instead:
        graph.remove((subject, predicate, None))
    for value in values:
        graph.add((subject, predicate, value))
    return graph


def checked(graph):
    return check(ntriples(graph).encode(), IRI)


def test_a_complete_entry_conforms():
    entry = render(definition(), facts())

    report = check(entry.ntriples, IRI)

    assert report.conforms
    assert report.results == ()
    assert report.document_sha256 == entry.sha256


ONE_FAULT = {
    "no fault": (changed(DATASET, DCT.title, instead=False), set()),
    "theme missing": (changed(DATASET, DCAT.theme), {("Warning", "theme")}),
    "EuroVoc beside the theme": (
        changed(DATASET, DCAT.theme, URIRef("http://eurovoc.europa.eu/1"), instead=False),
        set(),
    ),
    "size as decimal": (changed(CSV, DCAT.byteSize, typed("15851", XSD.decimal)), {("Violation", "byteSize")}),
    "size as integer": (changed(CSV, DCAT.byteSize, typed("15851", XSD.integer)), {("Violation", "byteSize")}),
    "licence as text": (changed(CSV, DCT.license, Literal("CC BY 4.0")), {("Violation", "license")}),
    "issued in words": (changed(DATASET, DCT.issued, Literal("letzten Mittwoch")), {("Violation", "issued")}),
    "issued twice": (
        changed(DATASET, DCT.issued, typed("2013-01-01", XSD.date), instead=False),
        {("Violation", "issued")},
    ),
    "issued as IRI": (changed(DATASET, DCT.issued, URIRef("https://ex.org/2013")), {("Violation", "issued")}),
    "media type as text": (changed(CSV, DCAT.mediaType, Literal("text/csv")), {("Violation", "mediaType")}),
    "access address missing": (changed(CSV, DCAT.accessURL), {("Violation", "accessURL")}),
    "language as text": (changed(DATASET, DCT.language, Literal("en")), {("Violation", "language")}),
    "old status": (changed(CSV, ADMS.status, URIRef("http://purl.org/adms/status/Completed")), set()),
    "https algorithm": (
        changed(
            URIRef(f"{IRI}#csv-checksum"), SPDX.algorithm, URIRef("https://spdx.org/rdf/terms#checksumAlgorithm_sha256")
        ),
        set(),
    ),
    "foreign frequency": (changed(DATASET, DCT.accrualPeriodicity, URIRef("http://purl.org/cld/freq/weekly")), set()),
    "old version property": (changed(DATASET, OWL.versionInfo, Literal("2")), {("Warning", "versionInfo")}),
    "temporal missing": (changed(DATASET, DCT.temporal), {("Warning", "temporal")}),
    "kind of publisher missing": (changed(URIRef("https://office.example.org/id"), DCT.type), {("Warning", "type")}),
    "title missing": (changed(DATASET, DCT.title), {("Violation", "title")}),
    "two publishers": (
        changed(DATASET, DCT.publisher, URIRef("https://ex.org/other"), instead=False),
        {("Violation", "publisher")},
    ),
    "checksum as text": (
        changed(URIRef(f"{IRI}#csv-checksum"), SPDX.checksumValue, Literal("ab")),
        {("Violation", "checksumValue")},
    ),
}


@cache
def judged(fault):
    return tuple(validate(ONE_FAULT[fault][0]))


@pytest.mark.parametrize("fault", ONE_FAULT)
def test_one_fault_is_found_as_that_fault(fault):
    _, expected = ONE_FAULT[fault]

    results = tuple(result for _, result in judged(fault))

    # as a set, because one fault may give several results
    assert {(result.severity, re.split("[/#]", str(result.path))[-1]) for result in results} == expected
    assert Report("", results).conforms == ("Violation" not in {severity for severity, _ in expected})


def test_each_rule_finds_the_breach_it_is_for():
    graph, expected = Graph(), set()
    wrong = {"text": [URIRef("https://ex.org/x")], "any": [Literal("a"), Literal("b")]}
    rules_of_path = Counter()
    for rule in rules.RULES:
        prefix, name = rule.path.split(":")
        # A node of the class breaks one rule of each path: judging takes time by the node.
        node = URIRef(f"https://ex.org/{rule.of}/{rules_of_path[rule.of, rule.path]}")
        rules_of_path[rule.of, rule.path] += 1
        path = URIRef(rules.NAMESPACES[prefix] + name)
        graph.add((node, RDF.type, from_n3(rule.of, nsm=prefixes())))
        missing = rule.kind == "any" and rule.high is rules.MANY  # all that can be wrong
        for value in [] if missing else wrong.get(rule.kind, [Literal("no such value")]):
            graph.add((node, path, value))
        expected.add((node, str(path), rule.severity))

    breaches = {(focus, result.path, result.severity) for focus, result in validate(graph)}

    assert expected - breaches == set()


@cache
def prefixes():
    manager = Graph().namespace_manager
    for prefix, namespace in PREFIXES.items():
        manager.bind(prefix, namespace, replace=True)
    return manager


def test_each_count_of_a_rule_is_watched():
    graph, expected = Graph(), set()
    for rule in rules.RULES:
        path = URIRef(rules.NAMESPACES[rule.path.split(":")[0]] + rule.path.split(":")[1])
        # Two nodes of each class, for whoever has nothing lacks all, and results name their rule.
        none, many = URIRef(f"https://ex.org/{rule.of}/none"), URIRef(f"https://ex.org/{rule.of}/many")
        for node in (none, many):
            graph.add((node, RDF.type, from_n3(rule.of, nsm=prefixes())))
        for value in range((rule.high or 0) + 1):
            graph.add((many, path, URIRef(f"https://ex.org/{value}")))
        if rule.low:
            expected.add((none, f"{rule.name} MinCount"))
        if rule.high is not None:
            expected.add((many, f"{rule.name} MaxCount"))

    assert expected - {(focus, result.rule) for focus, result in validate(graph)} == set()


def test_OD_35_each_generated_property_shape_has_exactly_one_path():
    shapes = Graph().parse(data=rules.shapes(), format="turtle")
    properties = set(shapes.subjects(RDF.type, SH.PropertyShape))

    assert len(properties) == len(rules.RULES)
    assert properties == set(shapes.objects(None, SH.property))
    assert all(len(list(shapes.objects(shape, SH.path))) == 1 for shape in properties)


@pytest.mark.parametrize(
    ("rule", "graph"),
    [
        ("dataset-is-typed", changed(DATASET, RDF.type)),
        ("distribution-is-typed", changed(CSV, RDF.type)),
        ("text-says-something", changed(DATASET, DCT.title, Literal("", lang="en"), instead=False)),
        ("text-says-something", changed(DATASET, DCAT.keyword, Literal(" \n", lang="en"), instead=False)),
        ("text-has-a-language", changed(DATASET, DCT.description, Literal("All flights."))),
        ("address-is-not-the-dataset", changed(CSV, DCAT.accessURL, DATASET)),
        ("value-is-of-its-type", changed(DATASET, DCT.issued, typed("letzten Mittwoch", XSD.date))),
        ("value-is-of-its-type", changed(CSV, DCAT.byteSize, typed("-5", XSD.nonNegativeInteger))),
        *(
            ("value-is-of-its-type", changed(DATASET, DCT.issued, typed(text, XSD[datatype])))
            for datatype, texts in {
                "gYearMonth": ["2004-4", "2003", "2014-04-06T00:00:00", "2012-15"],
                "gYear": ["16", "2008-04-02"],
                "dateTime": ["2023-05-01 10:00:00", "2024-01-31T24:00:00Z"],
            }.items()
            for text in texts
        ),
    ],
)
def test_OD_22_a_precondition_finds_what_shapes_let_pass(rule, graph):
    assert rule in {result.rule for result in checking.preconditions(graph, DATASET)}


def test_a_precondition_that_fails_forbids_publication():
    report = checked(changed(DATASET, DCAT.keyword, Literal(" ", lang="en")))

    assert (report.conforms, [result.rule for result in report.results]) == (False, ["text-says-something"])


def test_a_blank_node_and_a_broken_IRI_are_found_even_where_a_parser_takes_them():
    graph = changed(DATASET, DCT.spatial, BNode(), URIRef("https://ex.org/a|b"))

    told = {result.rule for result in checking.preconditions(graph, DATASET)}

    assert told == {"no-blank-node", "iri-is-legal"}


@pytest.mark.parametrize(
    ("text", "datatype"),
    [
        ("2004-04", "gYearMonth"),
        ("-2014-02", "gYearMonth"),
        ("2008", "gYear"),
        ("2019-12-22T09:06:52.000Z", "dateTime"),
    ],
)
def test_OD_19_a_good_date_passes(text, datatype):
    assert not list(checking.preconditions(changed(DATASET, DCT.issued, typed(text, XSD[datatype])), DATASET))


def test_what_the_dataset_doesn_t_lead_to_isn_t_its_fault():
    graph = changed(DATASET, DCT.title, instead=False)
    stranger = URIRef("https://ex.org/stranger")
    graph.add((stranger, RDF.type, DCAT.Dataset))

    assert stranger in {focus for focus, _ in validate(graph)}
    assert checked(graph).conforms


def test_OD_14_a_warning_is_counted_and_passes():
    report = checked(ONE_FAULT["old version property"][0])

    assert (report.conforms, report.violations, report.warnings) == (True, 0, 1)


def test_OD_14_missing_recommended_properties_are_counted_and_pass():
    graph = changed(DATASET, DCT.spatial)
    graph.remove((DATASET, DCT.temporal, None))

    report = checked(graph)

    assert (report.conforms, report.violations, report.warnings) == (True, 0, 2)
    told = report.as_json()
    assert (told["conforms"], told["warnings"]) == (True, 2)
    assert [(result["severity"], result["rule"], result["field"]) for result in told["results"]] == [
        ("Warning", "dcat:Dataset/dct:spatial/recommended MinCount", "spatial"),
        ("Warning", "dcat:Dataset/dct:temporal/recommended MinCount", "temporal"),
    ]


def test_the_record_is_checked_with_its_dataset():
    record = URIRef(f"{IRI}#record")

    assert [result.focus for result in checked(changed(record, DCT.modified)).results] == [str(record)]


def test_a_report_is_data_that_names_what_it_was_made_by():
    report = checked(ONE_FAULT["size as decimal"][0])

    told = json.loads(json.dumps(report.as_json()))

    assert told["profile"] == {"name": "DCAT-AP", "version": "3.0.1", "tier": "base"}
    assert (told["conforms"], told["violations"], told["warnings"], told["results_left_out"]) == (False, 1, 0, 0)
    assert told["results"] == [
        {
            "severity": "Violation",
            "focus": str(CSV),
            "path": str(DCAT.byteSize),
            "value": "15851",
            "rule": "dcat:Distribution/dcat:byteSize Datatype",
            "message": told["results"][0]["message"],
            "field": None,
        }
    ]
    assert told["shapes_sha256"] == rules.shapes_sha256()
    assert told["validator"].keys() == {"pyshacl", "rdflib", "options"}


def test_a_long_report_keeps_a_thousand_results_and_the_true_count():
    result = Result("Violation", IRI, None, None, "rule", "message")

    told = Report("", (result,) * 3_000).as_json()

    assert (len(told["results"]), told["violations"], told["results_left_out"]) == (KEPT, 3_000, 2_000)


def test_a_validator_that_breaks_is_an_exception_and_never_a_verdict(monkeypatch):
    dangling = rules.shapes().replace("sh:path dct:title ;", "", 1)
    monkeypatch.setattr(checking, "_shapes", lambda: Graph().parse(data=dangling, format="turtle"))

    with pytest.raises(Exception, match="path"):
        checked(ONE_FAULT["no fault"][0])


@pytest.mark.parametrize("answer", [(True, "not a graph", ""), (True, Graph(), "")])
def test_a_validator_without_a_report_is_an_exception(monkeypatch, answer):
    monkeypatch.setattr(pyshacl, "validate", lambda *_, **__: answer)

    with pytest.raises(CheckBroken):
        checked(ONE_FAULT["no fault"][0])


def test_a_document_that_can_t_be_read_is_an_exception():
    with pytest.raises(Exception, match="Invalid line"):
        check(b"no triples at all", IRI)


def test_no_check_goes_to_the_network(monkeypatch):
    def refuse(*_):
        raise AssertionError("a check opened a connection")

    monkeypatch.setattr(socket.socket, "connect", refuse)

    checked(changed(DATASET, OWL.imports, URIRef("http://127.0.0.1:9/shapes.ttl")))
