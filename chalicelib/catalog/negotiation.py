"""Which form a reader gets: by the address's suffix, else by the Accept header."""

import re
from collections.abc import Sequence

FORMATS = {
    "text/turtle": "ttl",
    "application/ld+json": "jsonld",
    "application/json": "jsonld",
    "application/rdf+xml": "rdf",
    "application/n-triples": "nt",
}
"""Media type to the name of a stored document, best first; the name is the suffix, too."""

VARY = "Accept"
"""What an answer without a suffix, a refusal included, must say in its Vary header."""

SUFFIXES = {suffix: media_type for media_type, suffix in reversed(FORMATS.items())}
"""What a suffix asks for."""

_QUALITY = re.compile(r"q=(0(?:\.\d{0,3})?|1(?:\.0{0,3})?)", re.IGNORECASE)
_RANGE = re.compile(r"(\*/\*|[\w!#$&^.+-]+/(?:\*|[\w!#$&^.+-]+))", re.ASCII)


def negotiate(accept: str | None, suffix: str | None = None, offered: Sequence[str] = tuple(FORMATS)) -> str | None:
    """The media type to answer with, or None: 406 for an Accept header, 404 for a suffix.

    ``offered`` is what there is, best first. A suffix (``ttl``) wins over the header. Among equal wishes the more
    exact one counts, then the order of ``offered``. A header without any readable wish is no wish.
    """
    if suffix is not None:
        media_type = SUFFIXES.get(suffix.lower().removeprefix("."))
        return media_type if media_type in offered else None
    wishes = _wishes(accept or "")
    if not wishes:
        return offered[0]
    best = max(offered, key=lambda media_type: _quality(media_type, wishes))  # max keeps the first of equals
    return best if _quality(best, wishes) > 0 else None


def _wishes(accept: str) -> dict[str, float]:
    """Media range to quality; parameters other than q (charset, profile) change nothing here."""
    wishes: dict[str, float] = {}
    for part in accept.split(","):
        media_range, *parameters = [piece.strip() for piece in part.split(";")]
        if _RANGE.fullmatch(media_range):
            quality = next((match.group(1) for each in parameters if (match := _QUALITY.fullmatch(each))), "1")
            wishes[media_range.lower()] = float(quality)
    return wishes


def _quality(media_type: str, wishes: dict[str, float]) -> float:
    """The most exact range that fits decides, so that ``text/turtle;q=0`` shuts Turtle out of ``*/*``."""
    for media_range in (media_type, media_type.split("/")[0] + "/*", "*/*"):
        if media_range in wishes:
            return wishes[media_range]
    return 0
