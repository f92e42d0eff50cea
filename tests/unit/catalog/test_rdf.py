import pytest
from rdflib import RDF, XSD, BNode, Graph, Literal, URIRef

from chalicelib.catalog.rdf import PREFIXES, Unwritable, documents, ntriples, read, typed

A, TITLE = URIRef("https://ex.org/a"), URIRef(PREFIXES["dct"] + "title")
PARSERS = {"nt": "nt", "ttl": "turtle", "rdf": "xml", "jsonld": "json-ld"}


def graph(*triples):
    made = Graph()
    for triple in triples:
        made.add(triple)
    return made


def reread(document, name):
    # through read(), because it keeps literals as they are written
    return set(read(ntriples(Graph().parse(data=document, format=PARSERS[name])).encode()))


@pytest.mark.parametrize("name", PARSERS)
def test_OD_07_every_format_gives_back_the_same_triples(name):
    told = graph(
        (A, RDF.type, URIRef(PREFIXES["dcat"] + "Dataset")),
        (A, TITLE, Literal('say "hi" & <b> \\ \\u0022 \\\\Upper \t ä 😀\nsecond\r line', lang="en")),
        (A, TITLE, Literal("]]> &amp; \u2028 \u0085", lang="de-at")),
        (A, TITLE, Literal("plain")),
        (A, TITLE, typed("2013", XSD.gYear)),
        (A, URIRef(PREFIXES["dcat"] + "landingPage"), URIRef("https://ex.org/straße?x=%5B1%5D&y=😀")),
        (URIRef("http://[2001:db8::1]/a"), TITLE, Literal("x", lang="en")),
        (A, URIRef(PREFIXES["vcard"] + "hasEmail"), URIRef("mailto:a@ex.org")),
    )

    assert reread(documents(told)[name], name) == set(told)


def test_OD_15_a_time_and_its_hash_stay_as_written():
    moment = f'<{A}> <{TITLE}> "2024-01-31T12:00:00Z"^^<{XSD.dateTime}> .\n'.encode()

    once = ntriples(read(moment)).encode()

    assert once == moment
    assert ntriples(read(once)).encode() == moment
    assert all("2024-01-31T12:00:00Z" in document for document in documents(read(moment)).values())


def test_the_canonical_form_is_sorted_ASCII_and_no_blank_node():
    text = ntriples(graph((A, TITLE, Literal("ü😀", lang="de")), (A, TITLE, Literal("a", lang="en"))))

    assert text == f'<{A}> <{TITLE}> "\\u00FC\\U0001F600"@de .\n<{A}> <{TITLE}> "a"@en .\n'
    with pytest.raises(Unwritable, match="BNode"):
        ntriples(graph((A, TITLE, BNode())))


def test_a_backslash_before_a_u_can_t_be_taken_for_a_code_point():
    text = ntriples(graph((A, TITLE, Literal("\\u0022 . \\U00000022"))))

    assert text == f'<{A}> <{TITLE}> "\\\\\\u00750022 . \\\\\\u005500000022" .\n'
    assert set(read(text.encode())) == {(A, TITLE, Literal("\\u0022 . \\U00000022"))}


@pytest.mark.parametrize(
    "iri", ["x> . <urn:evil> <urn:p> <urn:o", "https://ex.org/a b", "relative", "https://ex.org/\n", ""]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_OD_08_a_broken_IRI_is_refused_in_every_place(iri, place):
    triple = [A, TITLE, A]
    triple[place] = URIRef(iri)

    with pytest.raises(Unwritable, match="no legal IRI"):
        ntriples(graph(tuple(triple)))


@pytest.mark.parametrize("text", ["\x00", "\x0b", "\x1f", "\ufffe", "\uffff", "\ud800"])
def test_OD_09_a_character_that_XML_can_t_hold_is_refused(text):
    with pytest.raises(Unwritable, match=r"U\+"):
        ntriples(graph((A, TITLE, Literal(text))))


@pytest.mark.parametrize(
    "predicate", ["http://ex.org/123", "http://purl.org/dc/terms/123", "http://purl.org/dc/terms/a/b"]
)
def test_OD_11_a_predicate_without_a_name_is_refused_and_never_split_elsewhere(predicate):
    with pytest.raises(Unwritable, match="no name in a namespace"):
        documents(graph((A, URIRef(predicate), Literal("x"))))
