"""A target's database: the fence of a table, the staging table beside it, the merge; each transaction checks the fence.

All that Leaseway has there lies in the schema leaseway: a stale worker finds a newer fence, and changes nothing.
"""

# ruff: noqa: S608 - names are quoted, values are literals that psycopg writes

import re
import select
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import pq, sql
from psycopg.errors import error_from_result
from psycopg.types.json import Jsonb

from chalicelib.db import statements
from chalicelib.engine import LeaseLost
from chalicelib.exports.errors import Detail, of_psycopg
from chalicelib.exports.formats import quoted
from chalicelib.exports.relation import LOCK_WAIT, QUIET, SILENCE, reach, types_of
from chalicelib.exports.types import TYPES

from .manifest import Contract

SQL = statements("chalicelib.pipelines.refresh")
SOURCE = statements("chalicelib.exports")

BEGIN = f"""
begin;
set local timezone = 'UTC';
set local datestyle = 'ISO, YMD';
set local intervalstyle = 'iso_8601';
set local extra_float_digits = 1;
set local client_encoding = 'UTF8';
set local standard_conforming_strings = on;
set local idle_in_transaction_session_timeout = '5min';
set local lock_timeout = '{LOCK_WAIT}';
"""

STAGING = re.compile(r"refresh_[0-9a-f]{32}_[0-9]{1,3}")

CODES = {
    "source_unreachable": "target_unreachable",
    "source_untrusted": "target_untrusted",
    "source_conflict": "target_conflict",
    "source_timeout": "target_timeout",
    "source_denied": "target_denied",
    "source_changed": "target_changed",
    "source_bad_record": "target_refused",
}
"""What is the source's fault there is the target's here: the SQLSTATEs are the same."""

WRITTEN_ALIKE = {"text", "decimal", "double", "interval", "json"}
"""Types whose values may be equal and yet be written differently (1.0 and 1.00, 0 and -0, 1 mon and 30 days, what
citext or a collation of the target calls equal), or which have no equality: their text counts."""

SAYABLE = "{0} operator(pg_catalog.>=) '0001-01-01' and {0} operator(pg_catalog.<=) '9999-12-31'"
"""A watermark is an instant that every reader can say; infinity is none."""


EQUAL = "operator(pg_catalog.=)"


class TargetError(Exception):
    """The target's database didn't do what the contract needs; ``code`` says why, ``details`` where."""

    def __init__(self, code: str, details: dict[str, Detail]):
        super().__init__(code)
        self.code = code
        self.details = details


class ChecksFailed(Exception):
    """The records don't meet the contract's checks; ``seen`` says by how much."""

    def __init__(self, seen: "Seen"):
        super().__init__()
        self.seen = seen


@dataclass
class Seen:
    """What the checks have seen of the records."""

    read: int = 0
    rejected: int = 0
    watermark: str | None = None
    checks: list[dict[str, Any]] = field(default_factory=list)

    def verdict(self, check: str, passed: bool, **said: object) -> None:
        """Add a check's verdict."""
        self.checks.append({"check": check, "passed": passed, **said})

    @property
    def came(self) -> int:
        """The records that aren't rejected."""
        return self.read - self.rejected


@contextmanager
def blaming_target(table: str) -> Iterator[None]:
    """What psycopg raises inside becomes a TargetError that names the table; its text may quote values, and goes."""
    try:
        yield
    except psycopg.Error as error:
        named = of_psycopg(error, table)
        # Who slept for too long in a transaction may try again: it is rolled back.
        slept = error.sqlstate == "25P03"
        raise TargetError("target_unreachable" if slept else CODES[named.code], named.details) from None


def drop_staging(dsn: str, table: str) -> None:
    """Drop a staging table; one that isn't there is fine."""
    if not STAGING.fullmatch(table):
        raise ValueError(table)
    with blaming_target(table), reach(dsn) as connection:
        connection.patience = SILENCE
        connection.execute(f"set local lock_timeout = '{LOCK_WAIT}'; drop table if exists leaseway.{quoted(table)}")


def column_faults(connection: psycopg.Connection, contract: Contract) -> Iterator[str]:
    """The target's columns whose type doesn't take what the contract declares."""
    oids = _column_types(connection, contract)
    types = types_of(connection, oids)
    for column, oid in zip(contract.columns, oids, strict=True):
        if not TYPES[column.type].takes(types[oid]):
            yield column.name


def _column_types(connection: psycopg.Connection, contract: Contract) -> list[int]:
    names = _list(column.name for column in contract.columns)
    described = connection.execute(f"select {names} from {_table(contract)} limit 0", binary=True).description
    return [column.type_code for column in described or []]


def identity(connection: psycopg.Connection, table: str) -> str:
    """Which table it is, on which server, where it is known to be there; TargetError where it is a view."""
    found = connection.execute(SOURCE.find_identity, {"relation": table}).fetchone()
    assert found is not None
    if found[1]:
        raise TargetError("target_is_view", {"relation": table})
    return str(found[0])


class Target:
    """The target of one contract, for one claim."""

    def __init__(
        self,
        dsn: str,
        contract: Contract,
        fence: int,
        staging: str,
        beat: Callable[[], None],
        statement_timeout: int | None = None,
    ):
        """Reach it; ``beat`` is called while its server is busy, and what it raises ends the transaction.

        Each statement may take ``statement_timeout`` seconds; without it, what the login's own setting says.
        """
        self._begins = BEGIN + (f"set local statement_timeout = '{statement_timeout}s'" if statement_timeout else "")
        self._contract = contract
        self._table = contract.target.table
        self._target = _table(contract)
        self._staging = f"leaseway.{quoted(staging)}"
        self._names = [column.name for column in contract.columns]
        self._fence = {"target": self._table, "fence": fence}
        self._beat = beat
        self.identity: str | None = None
        self.staged = 0  # records in the staging table, as far as this claim knows
        self._equal: dict[str, str] = {}
        with self._blaming():
            self._connection = reach(dsn)
        self._connection.patience = SILENCE

    def close(self) -> None:
        """Hang up; what isn't committed is rolled back, and a statement that still runs is told to stop."""
        if self._connection.pgconn.transaction_status == pq.TransactionStatus.ACTIVE:
            with suppress(psycopg.Error):
                self._connection.cancel_safe(timeout=2)
        self._connection.close()

    def take(self) -> tuple[int, dict[str, Any] | None]:
        """Take the fence, and see that it is a table and has the contract's columns.

        Gives the fence that stands there now (a newer one means that we are stale), and what was last applied.
        """
        with self._transaction(held=False):
            if not self._one(SQL.find_fence_table)[0]:
                self._connection.execute(SQL.make_fence_table)
            for name in column_faults(self._connection, self._contract):
                raise TargetError("target_changed", {"relation": self._table, "column": name})
            self.identity = identity(self._connection, self._table)
            oids = _column_types(self._connection, self._contract)
            equalities: dict[int, str] = dict(self._connection.execute(SQL.list_equalities, {"oids": oids}))
            self._equal = {name: equalities.get(oid, EQUAL) for name, oid in zip(self._names, oids, strict=True)}
            fence, applied = self._one(SQL.take_fence, **self._fence)
        return fence, applied

    # Staging

    def begin_staging(self) -> None:
        """Make the staging table, empty, with the target's own types; what an earlier attempt left goes."""
        with self._transaction():
            self._connection.execute(f"drop table if exists {self._staging}")
            # Unlogged: a crash of the server empties it. Behind a pooler this connection outlives that, so what is
            # staged is counted, each chunk sees that it isn't empty, and the merge finds all of it.
            self._connection.execute(
                f"create unlogged table {self._staging} as select {_list(self._names)} from {self._target} with no data"
            )
            self._connection.execute(
                f"alter table {self._staging} add column leaseway_row bigint generated always as identity,"
                " add column leaseway_key pg_catalog.text[]"
            )
        self.staged = 0

    def resume_staging(self, least: int) -> bool:
        """Go on with what an earlier attempt has staged; whether at least so many records are still there."""
        with self._transaction():
            [(there,)] = self._run(f"select pg_catalog.count(*) from {self._staging}")
        self.staged = int(there)
        return self.staged >= least

    def last_key(self) -> list[str] | None:
        """The source's key of the last staged record, each value as text; None where there is none."""
        with self._transaction():
            last = self._connection.execute(
                f"select leaseway_key from {self._staging} order by leaseway_row desc limit 1"
            ).fetchone()
        return last[0] if last else None

    def stage(self, batches: Iterable[Sequence[memoryview]], *, keyed: bool = False) -> int:
        """Copy rows of COPY's text into the staging table, all of them or none; how many.

        With ``keyed`` each row ends with the record's key at the source, as an array of texts.
        """
        columns = _list([*self._names, "leaseway_key"] if keyed else self._names)
        rows = 0
        with self._transaction():
            if self.staged and not self._one(f"select exists (select from {self._staging})")[0]:
                raise self._lost()
            with self._connection.cursor().copy(f"copy {self._staging} ({columns}) from stdin") as copy:
                for batch in batches:
                    if batch:
                        copy.write(b"".join(batch))
                        rows += len(batch)
        self.staged += rows
        return rows

    def _lost(self) -> TargetError:
        return TargetError("staging_mismatch", {"relation": self._table})

    # The merge

    @contextmanager
    def merging(self) -> Iterator[None]:
        """The transaction that changes the target; the block ends with `commit`, or it is rolled back."""
        self._begin()
        try:
            yield
        finally:
            if self._connection.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                self.close()

    def check(self, unkeyed: int, bound: str | None, before: int | None) -> Seen:
        """Look at the staged records, and reject those that single records' checks refuse; ChecksFailed.

        ``unkeyed`` records were left at the source, for they have no key; ``bound`` is the oldest instant that is fresh
        enough; ``before`` is how many records came in the last run.
        """
        with self._blaming():
            self._run(f"analyze {self._staging}")
            seen = Seen()
            refusing = self._look(seen, unkeyed)
            if any(check.get("rejected") for check in seen.checks):
                deleted = self._run_counted(
                    f"delete from {self._staging} as staged using ({self._counted()}) as record"
                    f" where staged.ctid operator(pg_catalog.=) leaseway_place and ({' or '.join(refusing)})"
                )
                seen.rejected = deleted + unkeyed
            self._look_at_the_newest(seen, bound)
        checks, came = self._contract.checks, seen.came
        seen.verdict(
            "max_rejected", seen.rejected <= checks.max_rejected, found=seen.rejected, bound=checks.max_rejected
        )
        least, kept = self._contract.least, self._contract.least_after(before)
        seen.verdict("min_rows", came >= least, found=came, bound=least)
        seen.verdict("max_drop", came >= kept, found=came, bound=kept)
        if checks.max_rows is not None:
            seen.verdict("max_rows", came <= checks.max_rows, found=came, bound=checks.max_rows)
        if not all(check["passed"] for check in seen.checks):
            raise ChecksFailed(seen)
        return seen

    def _look(self, seen: Seen, unkeyed: int) -> list[str]:
        """Count what each check of single records refuses; the conditions, each the WHERE of such records."""
        checks = self._contract.checks
        missing = " or ".join(f"record.{quoted(name)} is null" for name in self._contract.key)
        conditions: list[tuple[str, dict[str, Any]]] = [(f"({missing})", {"check": "key"})]
        for name in checks.not_null:
            conditions.append((f"record.{quoted(name)} is null", {"check": "not_null", "column": name}))
        for name, values in checks.accepted_values.items():
            listed = ", ".join(self._literal(value) for value in values)
            refused = f"record.{quoted(name)}::pg_catalog.text operator(pg_catalog.<>) all (array[{listed}])"
            conditions.append((refused, {"check": "accepted_values", "column": name}))
        for n, names in enumerate(self._unique()):
            there = " and ".join(f"record.{quoted(name)} is not null" for name in names)
            several = f"({there} and leaseway_times_{n} operator(pg_catalog.>) 1)"
            conditions.append((several, {"check": "unique", "columns": names}))
        counts = ", ".join(f"pg_catalog.count(*) filter (where {condition})" for condition, _ in conditions)
        [(number, *found)] = self._run(f"select pg_catalog.count(*), {counts} from ({self._counted()}) as record")
        if int(number) != self.staged:
            raise self._lost()
        seen.read = int(number) + unkeyed
        for (_, said), text in zip(conditions, found, strict=True):
            rejected = int(text) + (unkeyed if said["check"] == "key" else 0)
            seen.checks.append({**said, "passed": rejected <= checks.max_rejected, "rejected": rejected})
        return [condition for condition, _ in conditions]

    def _unique(self) -> list[list[str]]:
        return [self._contract.key, *self._contract.checks.unique]

    def _counted(self) -> str:
        """The staged records, each with its place and how often its values of what must be unique are there."""
        times = (
            f"pg_catalog.count(*) over (partition by {_list(names)}) as leaseway_times_{n}"
            for n, names in enumerate(self._unique())
        )
        return f"select *, ctid as leaseway_place, {', '.join(times)} from {self._staging}"

    def _look_at_the_newest(self, seen: Seen, bound: str | None) -> None:
        fresh = self._contract.checks.freshness
        if fresh is None or bound is None:
            return
        name = quoted(fresh.column)
        newest = f"pg_catalog.max({name}) filter (where {SAYABLE.format(name)})::pg_catalog.timestamptz"
        fresh_enough = f"{newest} operator(pg_catalog.>=) {self._literal(bound)}::pg_catalog.timestamptz"
        [(text, passed)] = self._run(f"select {newest}, coalesce({fresh_enough}, false) from {self._staging}")
        seen.watermark = text or None
        seen.verdict("freshness", passed == "t", column=fresh.column, found=seen.watermark, bound=bound)

    def merge(self) -> dict[str, int]:
        """Bring the staged records into the target: rows inserted, updated and deleted."""
        key, alike = self._contract.key, self._alike()
        others = [name for name in self._names if name not in key or name in alike]
        same = self._same("target", "staged", key)
        counts = {"deleted": 0, "updated": 0}
        with self._blaming():
            if self._contract.mode == "replace":
                counts["deleted"] = self._run_counted(
                    f"delete from {self._target} as target"
                    f" where not exists (select from {self._staging} as staged where {same})"
                )
            if others:
                assigned = ", ".join(f"{quoted(name)} = staged.{quoted(name)}" for name in others)
                counts["updated"] = self._run_counted(
                    f"update {self._target} as target set {assigned} from {self._staging} as staged"
                    f" where {same} and ({' or '.join(map(self._differs, others))})"
                )
            counts["inserted"] = self._run_counted(
                f"insert into {self._target} ({_list(self._names)})"
                f" select {', '.join(f'staged.{quoted(name)}' for name in self._names)} from {self._staging} as staged"
                f" where not exists (select from {self._target} as target where {same})"
            )
            if self._contract.mode == "replace":
                self._see_each_key_once()
            # Deferred constraints and their triggers may take their time here, with beats; at the COMMIT they may not.
            self._run("set constraints all immediate")
        return counts

    def _see_each_key_once(self) -> None:
        """Rows that share a key all matched the staged one, so they were left; a unique index has none of them."""
        key = self._contract.key
        if self._one(SQL.find_unique_key, table=self._table, key=sorted(key))[0]:
            return
        [(there,)] = self._run(f"select exists (select from {self._target} {self._several(key)})")
        if there == "t":
            raise TargetError("target_has_key_twice", {"relation": self._table})

    def _alike(self) -> set[str]:
        return {column.name for column in self._contract.columns if column.of in WRITTEN_ALIKE}

    def _several(self, names: list[str]) -> str:
        return f"group by {_list(names)} having pg_catalog.count(*) operator(pg_catalog.>) 1"

    def _same(self, one: str, other: str, names: Iterable[str]) -> str:
        """Whether two records are equal in these columns, each as its own type has it."""
        equal = self._equal
        return " and ".join(f"{one}.{quoted(name)} {equal[name]} {other}.{quoted(name)}" for name in names)

    def _differs(self, name: str) -> str:
        there, comes = f"target.{quoted(name)}", f"staged.{quoted(name)}"
        equal = f"{there} {self._equal[name]} {comes}"
        if name in self._alike():
            text = '::pg_catalog.text collate pg_catalog."C"'
            equal = f"{there}{text} {EQUAL} {comes}{text}"
        # IS DISTINCT FROM would look for its operator by the login's search_path.
        return f"({equal}) is not true and ({there} is not null or {comes} is not null)"

    def settle(self, applied: dict[str, Any]) -> None:
        """Write down beside the fence what is changed, and drop the staging table: all of it comes true by `commit`."""
        with self._blaming():
            self._connection.execute(SQL.settle_fence, {"target": self._table, "applied": Jsonb(applied)})
            self._connection.execute(f"drop table {self._staging}")

    def expire(self, seconds: float) -> None:
        """Have the target's server roll back by itself what no COMMIT reaches it for within so many seconds."""
        with self._blaming():
            self._connection.execute(
                f"set local idle_in_transaction_session_timeout = '{max(1, int(seconds * 1000))}ms'"  # 0 is never
            )

    def commit(self, patience: float) -> None:
        """Make it true; whoever gets no answer within so many seconds reads back what was applied."""
        self._connection.patience = patience
        with self._blaming():
            self._connection.execute("commit")

    # What they have in common

    @contextmanager
    def _transaction(self, *, held: bool = True) -> Iterator[None]:
        """A transaction of its own, under the fence; where it breaks off, the connection is gone."""
        self._begin(held=held)
        try:
            with self._blaming():
                yield
                self._connection.execute("commit")
        except BaseException:
            self.close()
            raise

    def _begin(self, *, held: bool = True) -> None:
        with self._blaming():
            self._connection.execute(self._begins)
            if held and not self._connection.execute(SQL.hold_fence, self._fence).fetchone():
                raise LeaseLost

    def _one(self, statement: str, **params: object) -> tuple[Any, ...]:
        row = self._connection.execute(statement, params).fetchone()
        assert row is not None
        return row

    def _run(self, statement: str) -> list[tuple[str, ...]]:
        """Run a statement that may take its time, with beats meanwhile; its rows as text, null as nothing."""
        result = self._result(statement)
        return [
            tuple((result.get_value(row, column) or b"").decode() for column in range(result.nfields))
            for row in range(result.ntuples)
        ]

    def _run_counted(self, statement: str) -> int:
        return self._result(statement).command_tuples or 0

    def _result(self, statement: str) -> pq.abc.PGresult:
        server = self._connection.pgconn
        socket = select.poll()
        socket.register(server.socket, select.POLLIN)
        server.send_query_params(statement.encode(), None)
        while server.flush() or server.is_busy():
            if not socket.poll(QUIET * 1000):
                self._beat()
            server.consume_input()
        self._beat()
        result = server.get_result()
        assert result is not None  # something was asked
        server.get_result()  # None: it was one statement
        if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
            raise error_from_result(result)
        return result

    def _literal(self, value: str) -> str:
        return sql.Literal(value).as_string(self._connection)

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        with blaming_target(self._table):
            yield


def _list(names: Iterable[str]) -> str:
    return ", ".join(map(quoted, names))


def _table(contract: Contract) -> str:
    return ".".join(map(quoted, contract.target.table.split(".")))
