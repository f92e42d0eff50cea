"""What can go wrong between a source and object storage, as codes: never a message of the source or the store."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg

Detail = str | int | list[str]

MOST_NAMED = 20
"""Columns that one failure names."""


class SourceError(Exception):
    """The source's database didn't give its records; ``code`` says why, ``details`` where."""

    def __init__(self, code: str, sqlstate: str | None = None, **details: Detail):
        super().__init__(code)
        self.code = code
        self.details: dict[str, Detail] = details if sqlstate is None else {"sqlstate": sqlstate, **details}


def naming(columns: Sequence[str]) -> dict[str, Detail]:
    """Details that name columns: the first one, up to 19 others, and how many more there are."""
    named: dict[str, Detail] = {"column": columns[0]}
    if len(columns) > 1:
        named["others"] = list(columns[1:MOST_NAMED])
    if len(columns) > MOST_NAMED:
        named["more"] = len(columns) - MOST_NAMED
    return named


def spelt(details: Mapping[str, Detail]) -> str:
    """Details in one line: names and values."""
    return ", ".join(
        f"{name} {'; '.join(value) if isinstance(value, list) else value}" for name, value in details.items()
    )


class StorageAway(Exception):
    """Object storage doesn't answer: a time-out, a broken connection, or a 5xx."""

    def __init__(self, status: int | None = None):
        super().__init__()
        self.details: dict[str, str | int] = {} if status is None else {"status": status}


class StorageRefused(Exception):
    """Object storage answers, but not to this: a missing bucket or right, an upload that was aborted."""

    def __init__(self, status: int | None = None):
        super().__init__()
        self.details: dict[str, str | int] = {} if status is None else {"status": status}


class StorageMismatch(Exception):
    """What object storage holds isn't what was sent: size or checksum differ."""


class Stale(Exception):
    """What was staged, or made of it, isn't what it was: a file that went on from here would be a mixed one."""


# The longest prefix of the SQLSTATE decides. What isn't listed is worth another try.
CODES = {
    "08": "source_unreachable",  # also whatever a pool between says; see `of_psycopg` for the server's own 08P01
    "53": "source_unreachable",  # out of connections, memory or disk
    "57P": "source_unreachable",  # shutting down, crashed, starting up
    "58": "source_unreachable",
    "HV": "source_unreachable",  # a foreign table whose own server is away
    "40": "source_conflict",  # also a standby that puts replication first
    "55": "source_conflict",  # a lock not had in time, a materialised view not filled yet
    "XX000": "source_conflict",  # so PostgreSQL calls a relation that was dropped or altered under its hands, too
    "57014": "source_timeout",  # statement_timeout, or somebody's pg_cancel_backend
    "25P": "source_timeout",  # idle_in_transaction_session_timeout, transaction_timeout
    "28": "source_denied",
    "42501": "source_denied",
    "25006": "source_denied",  # the query writes
    "42": "source_changed",
    "3D": "source_changed",
    "3F": "source_changed",
    "0A": "source_changed",
    "24": "source_changed",  # cursors, transactions, prepared statements and savepoints: no query may handle them
    "25": "source_changed",
    "26": "source_changed",
    "2D": "source_changed",
    "34": "source_changed",
    "3B": "source_changed",
    "55P02": "source_changed",  # nor set what only the server's start sets
    "20": "source_bad_record",
    "21": "source_bad_record",
    "22": "source_bad_record",
    "23": "source_bad_record",
    "54": "source_bad_record",  # larger than PostgreSQL makes one
    "P0": "source_bad_record",  # a function of the source's that raises
    "2F": "source_bad_record",
    "38": "source_bad_record",
    "39": "source_bad_record",
    "09": "source_bad_record",  # a trigger's, a view's check: where a refresh writes
    "27": "source_bad_record",
    "2B": "source_bad_record",
    "44": "source_bad_record",
    "XX001": "source_bad_record",  # data corrupted
    "XX002": "source_bad_record",  # index corrupted
}


@dataclass(frozen=True)
class Refusal:
    """A refused connection: how its text looks, the SQLSTATE that the server had for it, the privilege that lacks."""

    text: re.Pattern[str]
    sqlstate: str
    privilege: str | None = None


# libpq gives no SQLSTATE for a refused connection, only text. A server that speaks another language than English counts
# as unreachable: it is asked again until the deadline, and the failure has the right neighbourhood.
REFUSALS = [
    Refusal(re.compile(rf"FATAL: .*({text})"), sqlstate, privilege)
    for text, sqlstate, privilege in (
        # First, and at the beginning: a database may be called what the others look for.
        ("(?<=FATAL:  )database .* does not exist", "3D000", None),
        ("password authentication failed", "28P01", None),
        ("not permitted to log in", "28000", "LOGIN"),
        ("authentication|pg_hba|role .* does not exist", "28000", None),
        ("permission denied for database", "42501", "CONNECT on the database"),
        ("too many (clients|connections)|connection slots are reserved", "53300", None),
        ("system is (starting up|shutting down|in recovery mode)|not (yet )?accepting connections", "57P03", None),
    )
]

# So libpq tells that TLS, as the address asks for it, can't be had. It says no more of a certificate that isn't valid.
UNTRUSTED = {
    "does not match host name": "a certificate of another name",
    "certificate verify failed": "a certificate of an unknown authority, or an expired one",
    "root certificate file": "no authority in the file of sslrootcert",
    "server does not support SSL": "no TLS",
}


def code_of(sqlstate: str | None) -> str:
    """The code that stands for a SQLSTATE; without one the connection is broken."""
    if sqlstate is None:
        return "source_unreachable"
    known = (prefix for prefix in sorted(CODES, key=len, reverse=True) if sqlstate.startswith(prefix))
    return CODES.get(next(known, ""), "source_conflict")


def of_psycopg(
    error: psycopg.Error, relation: str, lacking: Callable[[str], str | None] = lambda message: None
) -> SourceError:
    """What psycopg raised, as a SourceError that names the relation.

    ``lacking`` names the privilege that a refusal is about; the server's message helps it to look, and stays there.
    """
    sqlstate, privilege = error.sqlstate, None
    if sqlstate is None:
        if untrusted := next((found for text, found in UNTRUSTED.items() if text in str(error)), None):
            return SourceError("source_untrusted", relation=relation, found=untrusted)
        refusal = next((refusal for refusal in REFUSALS if refusal.text.search(str(error))), None)
        sqlstate, privilege = (refusal.sqlstate, refusal.privilege) if refusal else (None, None)
    elif sqlstate == "42501":
        privilege = lacking(error.diag.message_primary or "")
    code = code_of(sqlstate)
    # A query with a parameter ($1) that nobody gives. A pool says 08P01 of its own troubles, and ends the connection.
    if sqlstate == "08P01" and error.diag.severity_nonlocalized == "ERROR":
        code = "source_changed"
    # What a function would need more than a gigabyte for (a regular expression: four bytes a character) has no SQLSTATE
    # of its own; the text of an internal error is never translated.
    if sqlstate == "XX000" and "invalid memory alloc request size" in str(error):
        code = "source_bad_record"
    named = {} if privilege is None else {"privilege": privilege}
    return SourceError(code, sqlstate, relation=relation, **named)


@contextmanager
def blaming_source(relation: str, lacking: Callable[[str], str | None] = lambda message: None) -> Iterator[None]:
    """What psycopg raises inside becomes a SourceError that names the relation; see ``of_psycopg``."""
    try:
        yield
    except psycopg.Error as error:
        # The error's own text may quote a record's values, so it isn't even kept as the cause.
        raise of_psycopg(error, relation, lacking) from None
