import pytest

from chalicelib.catalog.negotiation import FORMATS, negotiate

TURTLE, JSON_LD, JSON, RDF_XML, N_TRIPLES = FORMATS


@pytest.mark.parametrize(
    ("accept", "answer"),
    [
        (None, TURTLE),
        ("", TURTLE),
        ("*/*", TURTLE),
        ("text/turtle;q=0.5, application/ld+json", JSON_LD),
        ("application/json", JSON),
        ("application/*", JSON_LD),
        ("application/rdf+xml, text/turtle", TURTLE),
        ("application/rdf+xml;q=0.9, text/*;q=0.8", RDF_XML),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", TURTLE),
        ("text/turtle;q=0, */*", JSON_LD),
        ("TEXT/Turtle ; charset=utf-8 ; Q=0.2 , application/n-triples;q=0.3", N_TRIPLES),
        ('application/ld+json;profile="http://www.w3.org/ns/json-ld#compacted"', JSON_LD),
        ("image/png", None),
        ("text/turtle;q=0", None),
        ("*/*;q=0", None),
        ("no media type at all", TURTLE),
    ],
)
def test_OD_91_the_reader_s_best_wish_is_served(accept, answer):
    assert negotiate(accept) == answer


@pytest.mark.parametrize(
    ("suffix", "answer"), [("ttl", TURTLE), (".rdf", RDF_XML), ("JSONLD", JSON_LD), ("nt", N_TRIPLES), ("csv", None)]
)
def test_a_suffix_wins_over_the_header(suffix, answer):
    assert negotiate("image/png", suffix) == answer
    assert negotiate("application/n-triples", suffix) == answer


def test_only_what_is_offered_is_served():
    assert negotiate("application/json, text/turtle", offered=[TURTLE]) == TURTLE
    assert negotiate("application/json", offered=[TURTLE]) is None
    assert negotiate(None, "rdf", offered=[TURTLE]) is None
