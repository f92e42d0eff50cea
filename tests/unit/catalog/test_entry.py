import hashlib
from datetime import datetime, timedelta, timezone

import pytest
from rdflib import RDF, RDFS, XSD, BNode, Literal, URIRef

from chalicelib.catalog.check import check
from chalicelib.catalog.entry import ADMS, DCAT, DCT, FOAF, SPDX, VCARD, FileFacts, render
from chalicelib.catalog.rdf import Unwritable, read, typed
from tests.unit.catalog.flights import IRI, definition, facts

DATASET = URIRef(IRI)
EU = "http://publications.europa.eu/resource/authority/"


def entry(*, told=None, **changes):
    return read(render(definition(**changes), told or facts()).ntriples)


def test_OD_39_the_same_publication_gives_the_same_bytes_and_no_blank_node():
    once = render(definition(), facts())

    check(once.ntriples, IRI)  # pySHACL changes how rdflib reads literals, and leaves it changed
    again = render(definition(), facts())

    assert again == once
    assert once.sha256 == hashlib.sha256(once.ntriples).hexdigest()
    assert once.triples == len(set(read(once.ntriples)))
    assert not any(isinstance(term, BNode) for triple in read(once.ntriples) for term in triple)


def test_OD_39_the_parts_of_a_dataset_stand_under_its_IRI():
    graph = entry(publisher={"name": {"en": "Office"}})

    for predicate, fragment in ((DCT.temporal, "period"), (DCAT.contactPoint, "contact"), (DCT.publisher, "publisher")):
        assert graph.value(DATASET, predicate) == URIRef(f"{IRI}#{fragment}")
    assert graph.value(URIRef(f"{IRI}#csv"), SPDX.checksum) == URIRef(f"{IRI}#csv-checksum")


def test_OD_13_the_size_is_a_nonNegativeInteger_once():
    sizes = list(entry().objects(URIRef(f"{IRI}#csv"), DCAT.byteSize))

    assert sizes == [typed("15851", XSD.nonNegativeInteger)]


def test_OD_29_each_distribution_has_the_licence_and_the_dataset_none():
    graph = entry(licence="CC-BY 4.0")

    assert set(graph.subject_objects(DCT.license)) == {
        (URIRef(f"{IRI}#{name}"), URIRef(f"{EU}licence/CC_BY_4_0")) for name in ("csv", "json", "xml")
    }


def test_OD_32_publisher_and_contact_are_typed_for_readers_without_reasoning():
    graph = entry()

    assert set(graph.objects(graph.value(DATASET, DCT.publisher), RDF.type)) == {FOAF.Organization, FOAF.Agent}
    assert set(graph.objects(graph.value(DATASET, DCAT.contactPoint), RDF.type)) == {VCARD.Organization, VCARD.Kind}


def test_OD_34_the_checksum_is_SHA_256_as_hexBinary():
    checksum = URIRef(f"{IRI}#csv-checksum")
    graph = entry()

    assert graph.value(checksum, SPDX.algorithm) == URIRef("http://spdx.org/rdf/terms#checksumAlgorithm_sha256")
    assert graph.value(checksum, SPDX.checksumValue) == typed(facts().files[0].sha256, XSD.hexBinary)


def test_every_format_and_its_gzip_variant_is_a_distribution_of_its_own():
    def file(format, media_type, **more):
        told = {"bytes": 1, "sha256": "00" * 32, "url": f"{IRI}/v/{format}", "access_url": f"{IRI}/f/{format}"}
        return FileFacts(format=format, media_type=media_type, **told, **more)

    files = [
        file("csv", "text/csv", conforms_to=[f"{IRI}/versions/2/files/flights.csv-metadata.json"]),
        file("csv", "text/csv", compress="application/gzip"),
        file("csv-excel", "text/csv"),
        file("geojson", "application/geo+json", conforms_to=["https://www.rfc-editor.org/rfc/rfc7946"]),
        file("jsonl", "application/jsonl", conforms_to=[f"{IRI}/versions/2/files/flights.schema.json#/$defs/record"]),
    ]
    rendered = render(definition(), facts(files=files))

    graph = read(rendered.ntriples)
    assert check(rendered.ntriples, IRI).conforms
    media = "https://www.iana.org/assignments/media-types/"
    said = {
        str(node).partition("#")[2]: [
            str(value).removeprefix(media).removeprefix(f"{EU}file-type/") if value else None
            for value in (graph.value(node, term) for term in (DCT["format"], DCAT.mediaType, DCAT.compressFormat))
        ]
        for node in graph.objects(DATASET, DCAT.distribution)
    }
    assert said == {
        "csv": ["CSV", "text/csv", None],
        "csv-gz": ["CSV", "text/csv", "application/gzip"],
        "csv-excel": ["CSV", "text/csv", None],
        "geojson": ["GEOJSON", "application/geo+json", None],
        "jsonl": ["JSON", None, None],  # IANA has no application/jsonl, and DCAT-AP takes nothing else
    }
    assert {str(value) for value in graph.objects(None, DCT.conformsTo)} >= {
        address for each in files for address in each.conforms_to
    }
    titles = {str(text) for text in graph.objects(URIRef(f"{IRI}#csv-gz"), DCT.title)}
    assert "Flights from New York City in 2013 (CSV, gzip)" in titles


def test_OD_15_times_are_UTC_with_Z_and_whole_seconds():
    summer = datetime(2026, 1, 12, 4, 0, 0, 999, tzinfo=timezone(timedelta(hours=2)))

    issued = entry(told=facts(issued=summer)).value(URIRef(f"{IRI}#csv"), DCT.issued)

    assert str(issued) == "2026-01-12T02:00:00Z"


def test_OD_21_an_open_end_has_no_end_date():
    graph = entry(temporal={"start": "2013"})

    assert graph.value(URIRef(f"{IRI}#period"), DCAT.startDate) == typed("2013", XSD.gYear)
    assert graph.value(URIRef(f"{IRI}#period"), DCAT.endDate) is None


def test_OD_36_OD_37_values_of_the_EU_s_lists_are_their_IRIs():
    graph = entry(themes=["ENVI", "http://eurovoc.europa.eu/100141"], frequency="weekly")

    assert set(graph.objects(DATASET, DCAT.theme)) == {
        URIRef(f"{EU}data-theme/ENVI"),
        URIRef("http://eurovoc.europa.eu/100141"),
    }
    assert graph.value(DATASET, DCT.accrualPeriodicity) == URIRef(f"{EU}frequency/WEEKLY")


def test_every_language_of_the_metadata_is_there():
    graph = entry()

    for predicate in (DCT.title, DCT.description, DCAT.keyword, ADMS.versionNotes):
        assert {text.language for text in graph.objects(DATASET, predicate)} == {"en", "de"}
    assert {text.language for text in graph.objects(URIRef(f"{IRI}#csv"), DCT.description)} == {"en", "de"}


def test_a_language_without_sentences_of_its_own_gets_them_in_English():
    graph = entry(title={"ga": "Eitiltí"}, description={"ga": "Gach eitilt."})

    assert {text.language for text in graph.objects(DATASET, ADMS.versionNotes)} == {"en"}


def test_versions_are_a_chain():
    graph, version = entry(), URIRef(f"{IRI}/versions/2")

    assert graph.value(DATASET, DCAT.hasCurrentVersion) == version
    assert set(graph.objects(DATASET, DCAT.hasVersion)) == {version, URIRef(f"{IRI}/versions/1")}
    assert graph.value(version, DCAT.previousVersion) == URIRef(f"{IRI}/versions/1")
    assert graph.value(version, DCAT.isVersionOf) == DATASET
    assert graph.value(version, DCAT.version) == graph.value(DATASET, DCAT.version) == Literal("2")


def test_the_first_version_has_none_before_it():
    graph = entry(told=facts(version=1, previous_version=None))

    assert list(graph.objects(None, DCAT.previousVersion)) == []
    assert set(graph.objects(DATASET, DCAT.hasVersion)) == {URIRef(f"{IRI}/versions/1")}


def test_OD_41_a_harvester_counts_one_dataset_and_its_record_is_something_else():
    graph = entry()

    assert list(graph.subjects(RDF.type, DCAT.Dataset)) == [DATASET]
    assert list(graph.subjects(FOAF.primaryTopic, DATASET)) == [URIRef(f"{IRI}#record")]


def test_OD_33_no_concept_of_the_EU_is_typed_by_us():
    graph = entry()

    assert not [node for node in graph.subjects(RDF.type) if str(node).startswith(EU)]
    assert not list(graph.objects(None, RDFS.label))


def test_identifiers_are_the_publisher_s_own_else_the_IRI():
    assert set(entry(identifiers=["a-1", "b-2"]).objects(DATASET, DCT.identifier)) == {Literal("a-1"), Literal("b-2")}
    assert set(entry().objects(DATASET, DCT.identifier)) == {Literal(IRI)}


def test_OD_08_a_base_that_is_no_IRI_renders_nothing():
    with pytest.raises(Unwritable):
        render(definition(), facts(base_url="https://ex.org/> <urn:p> <urn:o"))
