"""What a constraint's refusal means to the caller: one map from its name to a code, a field and a remedy."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from .model import Refusal

REFUSALS = {
    "pause_ends_within_seven_days": (
        "bad_parameter",
        "hours",
        "A pause ends after at most 7 days, counted from its beginning: resume first, or take fewer hours.",
    ),
}


@contextmanager
def refusing() -> Iterator[None]:
    """Turn the violation of a known constraint into the Refusal it stands for."""
    try:
        yield
    except psycopg.IntegrityError as error:
        known = REFUSALS.get(error.diag.constraint_name or "")
        if known is None:
            raise
        raise Refusal(*known) from None
