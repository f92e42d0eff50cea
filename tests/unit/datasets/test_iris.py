import pytest

from chalicelib.iris import LINKS, absolute_iri, mailbox


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        ("http://ex.org/file name.csv", "http://ex.org/file%20name.csv"),
        ("  https://ex.org/a  ", "https://ex.org/a"),
        ("HTTPS://ex.org/A", "https://ex.org/A"),
        ("https://ex.org/a%20b", "https://ex.org/a%20b"),
        ("https://ex.org:8443/a?b=c&d#e", "https://ex.org:8443/a?b=c&d#e"),
        ("https://ex.org/login?next=https://b.org/y z", "https://ex.org/login?next=https://b.org/y%20z"),
        ("sftp://ex.org/a", "sftp://ex.org/a"),
    ],
)
def test_OD_02_an_address_is_made_whole_without_guessing(written, taken):
    assert absolute_iri(written, LINKS) == taken
    assert absolute_iri(taken, LINKS) == taken


@pytest.mark.parametrize("written", ["mailto: a@ex.org", "a@ex.org", " mailto:a@ex.org "])
def test_OD_02_a_mail_address_is_trimmed(written):
    assert mailbox(written) == "a@ex.org"


@pytest.mark.parametrize(
    "written", ["a", "a@ex", "a@ex.org, b@ex.org", "a b@ex.org", "a@ex.org>", "a?cc=b@ex.org", "a@ex.org?cc=b@ex.org"]
)
def test_what_is_no_mail_address_is_refused(written):
    with pytest.raises(ValueError, match="one mail address"):
        mailbox(written)


@pytest.mark.parametrize(
    "written", ["ttps://x.org/d", "Soon", "/d", "file:///etc/passwd", "javascript:alert(1)", "//x.org/d", ""]
)
def test_OD_04_only_known_schemes_are_addresses(written):
    with pytest.raises(ValueError, match="whole address that begins with ftp://, http://, https:// or sftp://"):
        absolute_iri(written, LINKS)


@pytest.mark.parametrize(
    ("written", "taken"),
    [
        ("https://ex.org/straße?x=[1]", "https://ex.org/straße?x=%5B1%5D"),
        ("http://[2001:db8::1]:8080/a[b]", "http://[2001:db8::1]:8080/a%5Bb%5D"),
    ],
)
def test_OD_07_letters_stay_and_brackets_are_encoded_except_around_an_IPv6_host(written, taken):
    assert absolute_iri(written) == taken


@pytest.mark.parametrize(
    "written",
    [
        "x> . <urn:evil> <urn:p> <urn:o",
        "https://ex.org/x> . <urn:evil> <urn:p> <urn:o",
        'https://ex.org/"',
        "https://ex.org/\\u003E",
        "https://ex.org/{a}",
        "https://ex.org/\x00",
        "https://ex.org/a\nb",
        "https://ex.org/\ud800",
        "https://ex.org/\ue000",
        "https://ex.org/?\ufdd0",
        "https://ex.org/\U000e0001",
        "https://ex.org/?\U0010ffff",
    ],
)
def test_OD_08_what_could_end_an_IRI_is_refused(written):
    with pytest.raises(ValueError, match="can't hold"):
        absolute_iri(written)


def test_OD_01_two_addresses_in_one_field_are_refused():
    with pytest.raises(ValueError, match="more than one address"):
        absolute_iri("https://a.org/x https://b.org/y")


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("https://", "no host"),
        ("https:///x", "no host"),
        ("https://a b.org/", "no host"),
        ("https://me:secret@ex.org/", "user name or password"),
        ("https://ex.org/100%", "write %25"),
        ("https://ex.org/a#b#c", "write %23"),
        ("https://[1:2]/", "no IPv6 address"),
    ],
)
def test_an_address_that_reaches_nobody_is_refused(written, sentence):
    with pytest.raises(ValueError, match=sentence):
        absolute_iri(written)
