"""PostgreSQL: one connection a process, statements kept in ``.sql`` files, migrations.

Nothing here keeps session state (no LISTEN, SET, advisory session lock or server-side prepared statement), so it works
behind RDS Proxy and PgBouncer in transaction mode (docs/invariants.md, 12). Time-outs are set on the functions' role.
"""

import select
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module, resources
from typing import Any, Protocol

import psycopg
from psycopg import pq, sql
from psycopg.rows import dict_row

from chalicelib.settings import Settings

Row = dict[str, Any]

CONNECT_TIMEOUT = 5
"""Seconds until a server that doesn't answer counts as away."""

SILENCE = 30
"""Seconds after which a server that acknowledges nothing counts as away (a failover, a lost route)."""


BUSY = (
    psycopg.errors.QueryCanceled,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.SerializationFailure,
    psycopg.errors.DeadlockDetected,
)
"""What PostgreSQL raises where others are at the same rows: nothing was done, and it may be asked again."""


class DatabaseAway(Exception):
    """Leaseway's own database doesn't answer."""


class Refused(Exception):
    """The database was made for another PUBLIC_URL, or an upgrade has not been completed."""


class Sql(Protocol):
    """What runs statements: a Database (each its own transaction) or a Transaction."""

    def run(self, sql: str, /, **params: object) -> list[Row]:
        """Run one statement; its rows, or none where it returns none."""

    def one(self, sql: str, /, **params: object) -> Row | None:
        """Run one statement; its first row."""


class Transaction:
    """Statements that commit or roll back together."""

    def __init__(self, connection: "psycopg.Connection[Row]"):
        self.connection = connection

    def run(self, sql: str, /, **params: object) -> list[Row]:
        """Run one statement; its rows."""
        with _away(self.connection):
            cursor = self.connection.execute(sql, params)
            return cursor.fetchall() if cursor.description else []

    def one(self, sql: str, /, **params: object) -> Row | None:
        """Run one statement; its first row."""
        rows = self.run(sql, **params)
        return rows[0] if rows else None


class Database:
    """One lazily opened connection, opened anew when it broke; for one thread.

    A statement whose reply was lost is not repeated here: only the caller knows whether it may be (invariant 5).
    """

    def __init__(self, dsn: str):
        self._dsn = dsn
        self._connection: psycopg.Connection[Row] | None = None
        self._transactions = 0
        """How many are open, one within the other."""

    def _open(self) -> "psycopg.Connection[Row]":
        if self._connection is None or self._connection.closed or self._connection.broken or _hung_up(self._connection):
            if self._transactions:  # on a new connection it would be outside of it, and committed by itself
                raise DatabaseAway("Leaseway's own database hung up in a transaction.")
            self.close()
            with _away():
                self._connection = psycopg.connect(
                    self._dsn,
                    autocommit=True,
                    prepare_threshold=None,
                    row_factory=dict_row,
                    connect_timeout=CONNECT_TIMEOUT,
                    tcp_user_timeout=SILENCE * 1000,
                    application_name="leaseway",
                )
        return self._connection

    def run(self, sql: str, /, **params: object) -> list[Row]:
        """Run one statement in a transaction of its own; its rows."""
        return Transaction(self._open()).run(sql, **params)

    def one(self, sql: str, /, **params: object) -> Row | None:
        """Run one statement in a transaction of its own; its first row."""
        return Transaction(self._open()).one(sql, **params)

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Statements that commit together at the end of the block, or not at all."""
        connection = self._open()
        self._transactions += 1
        try:
            with _away(connection), connection.transaction():
                yield Transaction(connection)
                if connection.closed:  # psycopg ends such a block without a word
                    raise DatabaseAway("Leaseway's own database hung up in a transaction.")
        finally:
            self._transactions -= 1

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _hung_up(connection: "psycopg.Connection[Row]") -> bool:
    """Whether the server has ended an idle connection (a restart, a failover); asked of the socket, without a query.

    A function process sleeps between requests, and its first one must not fail because the last one was long ago.
    """
    server = connection.pgconn
    if server.transaction_status == pq.TransactionStatus.ACTIVE:
        return True  # ended in a statement whose end libpq waits for: it takes no other one, and calls itself sound
    if server.transaction_status != pq.TransactionStatus.IDLE:
        return False
    try:
        while select.select([server.socket], [], [], 0)[0]:
            server.consume_input()  # a notice, its last words, or the end, which raises
    except psycopg.OperationalError:
        return True
    return False


SLEPT = (psycopg.errors.IdleInTransactionSessionTimeout, psycopg.errors.TransactionTimeout)
"""What the server says to whom it has hung up on for staying in a transaction."""


@contextmanager
def _away(connection: "psycopg.Connection[Row] | None" = None) -> Iterator[None]:
    try:
        yield
    except psycopg.errors.ReadOnlySqlTransaction as error:
        if connection:
            connection.close()  # the next one may lead to who is the primary now
        raise DatabaseAway(
            "Leaseway's own database can't be written to: a standby, or one that isn't promoted yet."
        ) from error
    except (psycopg.OperationalError, psycopg.InterfaceError, *SLEPT) as error:
        # Class 08, 53 and 57P0x, who slept in a transaction, or no SQLSTATE at all: the connection. Time-outs (57014),
        # deadlocks and serialisation failures are OperationalErrors too, but the server answered.
        state = error.sqlstate or ""
        if not state or state.startswith(("08", "53", "57P")) or isinstance(error, SLEPT):
            raise DatabaseAway(f"Leaseway's own database doesn't answer ({state or type(error).__name__}).") from error
        raise


class Statements:
    """The ``.sql`` files of a package: ``statements("chalicelib.engine").claim_job`` is sql/claim_job.sql's text."""

    def __init__(self, package: str):
        self._package = package
        self._texts: dict[str, str] = {}

    def __getattr__(self, name: str) -> str:
        if name not in self._texts:
            file = resources.files(import_module(self._package)) / "sql" / f"{name}.sql"
            if not file.is_file():
                raise AttributeError(f"{self._package}/sql/{name}.sql doesn't exist")
            self._texts[name] = file.read_text(encoding="utf-8")
        return self._texts[name]


@cache
def statements(package: str) -> Statements:
    """The statements that stand beside a package's code."""
    return Statements(package)


def connect(settings: Settings) -> Database:
    """Leaseway's own database, as the settings name it."""
    return Database(settings.dsn)


MIGRATION_LOCK = 7_305_482_190
"""One migration at a time: the transaction's advisory lock (it ends with it, so no session state)."""


def migrations() -> list[tuple[str, str]]:
    """Name and text of each, in their order: by number, and what comes before a deployment first."""
    folder = resources.files("chalicelib") / "schema"
    names = sorted(
        (file.name for file in folder.iterdir() if file.name.endswith(".sql")),
        key=lambda name: (name.split("_")[0], _after(name), name),
    )
    return [(name, (folder / name).read_text(encoding="utf-8")) for name in names]


def _after(name: str) -> bool:
    """Whether it waits until the new code is deployed: the old one still needs what it takes away."""
    return name.split("_")[1] == "post"


def migrate(dsn: str, public_url: str, *, deployed: bool = False) -> list[str]:
    """Bring the schema up to date; the names of the migrations applied, none on a second run.

    What is named post_ is left out until the new code is `deployed`, but for a database in which no code runs yet.
    PUBLIC_URL is the base of every IRI given out, so it is stored at the first migration and another one is refused.
    """
    applied = []
    with _away(), psycopg.connect(dsn, prepare_threshold=None, connect_timeout=CONNECT_TIMEOUT) as connection:
        connection.execute("select pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        connection.execute(
            "create table if not exists public.leaseway_migration"
            " (name text primary key, applied_at timestamptz not null default clock_timestamp())"
        )
        connection.execute("create table if not exists public.leaseway_installation (public_url text not null)")
        stored = connection.execute("select public_url from public.leaseway_installation").fetchone()
        if stored is None:
            connection.execute("insert into public.leaseway_installation values (%s)", [public_url])
        elif stored[0] != public_url:
            raise Refused(
                f"This database was made for PUBLIC_URL {stored[0]}, which is the base of every IRI it has given out;"
                f" {public_url} would change them all. Set PUBLIC_URL back, or, if the address really moves, put a"
                " redirect at the old one and update public.leaseway_installation in the same change."
            )
        done = {row[0] for row in connection.execute("select name from public.leaseway_migration")}
        pending = [(name, text) for name, text in migrations() if name not in done]
        if done and not deployed:
            waiting = [name for name, _ in pending if _after(name)]
            pending = [(name, text) for name, text in pending if not _after(name)]
            if waiting and pending and waiting[0].split("_")[0] < pending[-1][0].split("_")[0]:
                raise Refused(
                    f"{waiting[0]} belongs to the release before: once nothing older than that one runs any more,"
                    " `leaseway migrate --deployed` with its code; then this one."
                )
        for name, text in pending:
            connection.execute(text)
            connection.execute("insert into public.leaseway_migration (name) values (%s)", [name])
            applied.append(name)
    return applied


def set_time_outs(dsn: str, settings: Settings) -> list[str]:
    """Set the time-outs of the settings on the functions' role; the statements that this login may not run, if any.

    They are for this database alone, for roles are the whole server's. Sessions that are open keep what they have.
    """
    wanted = {
        "statement_timeout": f"{settings.statement_timeout:g}s",
        "lock_timeout": f"{settings.lock_timeout:g}s",
        "idle_in_transaction_session_timeout": f"{settings.idle_in_transaction:g}s",
    }
    with _away(), psycopg.connect(dsn, prepare_threshold=None, connect_timeout=CONNECT_TIMEOUT) as connection:
        connection.execute("select pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
        [(name, standing)] = connection.execute(statements("chalicelib").find_time_outs)
        alter = sql.SQL("alter role leaseway_app in database {} set ").format(sql.Identifier(name)).as_string()
        wrong = [f"{alter}{key} = '{to}';" for key, to in wanted.items() if f"{key}={to}" not in standing]
        try:
            for statement in wrong:
                connection.execute(statement)
        except psycopg.errors.InsufficientPrivilege:
            return wrong
    return []
