"""A connection looked at before it is used: how it is reached, what its login may read, that it can't write."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict

from chalicelib import codes
from chalicelib.db import statements

from .address import BadAddress, secured
from .errors import SourceError, blaming_source, spelt
from .formats import Column
from .relation import ONLY_POSTGRESQL, Relation, reach, snapshot

SQL = statements("chalicelib.exports")

OLDEST = 12
"""PostgreSQL's oldest version that is exported from."""


@dataclass(frozen=True)
class Wanted:
    """What must be read: a registered source, with the columns that a dataset publishes; without any, all it has."""

    source: str
    relation: str | None
    query: str | None
    columns: Sequence[Column] = ()


@dataclass
class Report:
    """What was seen: facts by name, what each source gave, and the findings, each a sentence with its remedy."""

    facts: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)


def check(dsn: str, wanted: Iterable[Wanted]) -> Report:
    """Look at a connection; nothing is written, and every source is asked for no record."""
    report = Report()
    try:
        address = secured(dsn)
        with blaming_source("the server"), reach(address) as connection, connection.transaction():
            connection.execute(ONLY_POSTGRESQL)  # a login that could write isn't to hide it by a search_path
            _look(connection, address, report)
    except BadAddress as error:
        report.findings.append(str(error))
        return report
    except SourceError as error:
        report.findings.append(f"It can't be looked at: {sentence(error)}")
        return report
    for one in wanted:
        _read(address, one, report)
    return report


def _look(connection: psycopg.Connection, address: str, report: Report) -> None:
    info = connection.info
    report.facts["reached"] = f"database {info.dbname} as {info.user}"
    report.facts["encryption"] = _encryption(connection, address)
    number = info.server_version
    report.facts["version"] = f"PostgreSQL {number // 10_000}.{number % 10_000}"
    if number < OLDEST * 10_000:
        report.findings.append(f"PostgreSQL {number // 10_000} is too old: {OLDEST} or later is exported from.")
    standby, delay, feedback = connection.execute(
        "select pg_is_in_recovery(), current_setting('max_standby_streaming_delay'),"
        " current_setting('hot_standby_feedback')"
    ).fetchall()[0]
    report.facts["role"] = (
        f"replica (max_standby_streaming_delay {delay}, hot_standby_feedback {feedback})" if standby else "primary"
    )
    may_write = [str(row[0]) for row in connection.execute(SQL.find_write_privileges, {})]
    # Leaseway's own schema, where both share a database: queries run under a login that can't see it.
    sees = connection.execute(
        "select from pg_catalog.pg_class as job join pg_catalog.pg_namespace as schema on schema.oid = relnamespace"
        " where (nspname, relname) = ('engine', 'job_event') and has_schema_privilege(schema.oid, 'USAGE')"
    ).fetchone()
    if sees is not None:
        report.findings.append("The login sees Leaseway's own schema: give the connection one that doesn't.")
    report.facts["writing"] = "nothing that it may write" if not may_write else f"{len(may_write)} things it may write"
    report.findings += [
        f"The login could write: {what}. Revoke it, or make a login that only reads." for what in may_write
    ]


def _encryption(connection: psycopg.Connection, address: str) -> str:
    if not connection.pgconn.ssl_in_use:
        return "none, it stays on this machine"
    row = connection.execute("select version from pg_catalog.pg_stat_ssl where pid = pg_backend_pid()").fetchone()
    verified = conninfo_to_dict(address).get("sslmode") == "verify-full"
    return f"{row[0] if row else 'TLS'}, {'the certificate is verified' if verified else 'not verified'}"


def _read(address: str, wanted: Wanted, report: Report) -> None:
    """Ask for no record of a source: the server looks at every right for that, those of views' owners too."""
    try:
        with snapshot(Relation(address, wanted.relation, wanted.query, wanted.columns)) as source:
            source.check_names()
            number = len(wanted.columns) or len(source.describe())
        report.sources.setdefault(wanted.source, f"reads {number} column{'' if number == 1 else 's'}")
    except SourceError as error:
        report.sources[wanted.source] = error.code
        report.findings.append(f"Source {wanted.source}: {sentence(error)}")


def unread(dsn: str, wanted: Iterable[Wanted]) -> list[str]:
    """What of these can't be read, each a sentence; the login isn't looked at."""
    report = Report()
    try:
        address = secured(dsn)
    except BadAddress as error:
        return [str(error)]
    for one in wanted:
        _read(address, one, report)
        if report.sources[one.source] in ("source_unreachable", "source_untrusted"):
            break  # nor does it answer for the others
    return report.findings


def sentence(error: SourceError) -> str:
    """What went wrong, where, and what mends it."""
    return f"{sentence_here(error)} ({spelt(error.details)})"


def sentence_here(error: SourceError) -> str:
    """What went wrong and what mends it, for whoever looks from here: nobody asks again for them, as a job does."""
    if error.code == "source_unreachable":
        return f"{codes.FAILURES[error.code].sentence} Look at its address in the secret, and at the way there."
    return codes.sentence(error.code, error.details.get("sqlstate"))
