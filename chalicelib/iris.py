"""Addresses and names as they come in: taken when they are IRIs or can be made one without guessing, else refused.

What is refused here can't turn into a relative IRI, a second triple or a piece of SPARQL later.
"""

import re
from ipaddress import IPv6Address

WEB = frozenset({"http", "https"})
LINKS = WEB | {"ftp", "sftp"}

# The characters of RFC 3987. Private ones, which it lets into a query, aren't taken anywhere; stores refuse the rest.
_WIDE = "".join(f"{chr(plane)}-{chr(plane + 0xFFFD)}" for plane in range(0x10000, 0xE0000, 0x10000))
_LETTERS = rf"!$&-;=?-\[\]_a-z~%\xa0-\ud7ff\uf900-\ufdcf\ufdf0-\uffef{_WIDE}\U000e1000-\U000efffd"
_FORBIDDEN = re.compile(f"[^ #{_LETTERS}]")
LEGAL = re.compile(rf"[A-Za-z][A-Za-z0-9+.-]*:[{_LETTERS}]*(?:#[{_LETTERS}]*)?")
"""An IRI as it may stand in a graph."""

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_PARTS = re.compile(r"([^:]+://)(?:([^/?#]*)@)?(\[[0-9A-Fa-f:.]+\]|[^/?#\[\]@:]*)(:[0-9]*)?([/?#].*)?")
_MAILBOX = re.compile(r"[A-Za-z0-9.!$'*+_~-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")


def absolute_iri(text: str, schemes: frozenset[str] = WEB) -> str:
    """The text as an absolute IRI: trimmed, spaces and brackets percent-encoded, letters beyond ASCII kept.

    Raises ValueError with a sentence that says what to change.
    """
    text = text.strip()
    if found := _FORBIDDEN.search(text):
        raise ValueError(f"can't hold {_named(found.group())}; percent-encode it, or correct the address")
    if len(re.findall(r"[A-Za-z][A-Za-z0-9+.-]*://", re.split(r"[?#]", text)[0])) > 1 and " " in text:
        raise ValueError("holds more than one address; give each its own entry")
    scheme = _SCHEME.match(text)
    if not scheme or scheme.group(1).lower() not in schemes:
        raise ValueError(
            f"must be a whole address that begins with {_either(schemes)}, e.g. https://data.example.org/x"
        )
    parts = _PARTS.fullmatch(text)
    if not parts or not parts.group(3) or " " in parts.group(3):
        raise ValueError("has no host; write it like https://data.example.org/x")
    if parts.group(2) is not None:
        raise ValueError("can't carry a user name or password; take out what stands before the @")
    if text.count("#") > 1:
        raise ValueError("has more than one #; write %23 for the second")
    if re.search(r"%(?![0-9A-Fa-f]{2})", text):
        raise ValueError("has a % without two hexadecimal digits after it; write %25 for the sign itself")
    start, _, host, port, rest = parts.groups(default="")
    if host.startswith("[") and not _is_ipv6(host[1:-1]):
        raise ValueError("has no IPv6 address between its brackets; correct the host")
    encoded = rest.replace(" ", "%20").replace("[", "%5B").replace("]", "%5D")  # only an IPv6 host keeps its brackets
    return f"{start.lower()}{host}{port}{encoded}"


def mailbox(text: str) -> str:
    """The text as a mail address, with or without ``mailto:``, trimmed; ValueError when it is none."""
    address = text.strip().removeprefix("mailto:").strip()
    if not _MAILBOX.fullmatch(address):
        raise ValueError("must be one mail address, like opendata@example.org")
    return address


def _is_ipv6(text: str) -> bool:
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return True


def _named(character: str) -> str:
    return character if character.isprintable() and character.isascii() else f"the character U+{ord(character):04X}"


def _either(schemes: frozenset[str]) -> str:
    *most, last = [f"{scheme}://" for scheme in sorted(schemes)]
    return f"{', '.join(most)} or {last}"
