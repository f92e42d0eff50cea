"""A refresh interrupted at every statement, in its own database, the source's and the target's, in each way there is.

A process that dies leaves its claim to recovery; one whose request or reply was lost goes on, and so does one that is
refused for a conflict. Left alone, each ends as if nothing had been: the targets are what the source is, no row was
touched twice, each contract has one audit. (To die before a statement is to die after the one before it.) So it ends
where the target's server crashes, which empties the staging table; behind a pooler only transactions hear of that.
"""

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from chalicelib import pipelines
from chalicelib.db import DatabaseAway
from chalicelib.engine import Engine
from chalicelib.exports import relation
from chalicelib.pipelines.refresh import steps
from chalicelib.pipelines.refresh.target import Target, TargetError
from tests.proof.world import Died, Faulty
from tests.writing import CONFLICTS, IDLE, UNLOGGED

from .test_refresh import make, other

LOST = psycopg.OperationalError("the connection is lost")

MODES = ["killed after", "request lost", "reply lost", "a conflict", "a crash", "a crash behind a pooler"]


class Interrupted:
    """Counts the calls, and lets one go wrong."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.mode = ""
        self.calls: list[str] = []
        self.target: psycopg.Connection | None = None

    def start(self, number: int | None, mode: str) -> None:
        self.number, self.mode, self.calls = number, mode, []

    def __call__(self, name: str, act: Callable[[], Any], lost: BaseException) -> Any:
        self.calls.append(name)
        if len(self.calls) - 1 != self.number:
            return act()
        if "crash" in self.mode:
            self.crash()
            return act()
        if self.mode == "a conflict":
            conflict = CONFLICTS[len(self.calls) % 2]
            lost = TargetError("target_conflict", {}) if name == "target, copy" else psycopg.errors.lookup(conflict)()
        if self.mode in ("request lost", "a conflict"):
            if hasattr(act, "give_up"):
                act.give_up(lost)
            raise lost
        act()
        raise Died if self.mode == "killed after" else lost

    def crash(self) -> None:
        """Do what a crash of the target's server does: transactions end, without a pooler connections, too."""
        target = self.target
        with psycopg.connect(self.admin_dsn, autocommit=True) as admin:
            if target and not target.closed and (self.mode == "a crash" or target.info.transaction_status != IDLE):
                admin.execute("select pg_terminate_backend(%s, 10000)", [target.info.backend_pid])
            for (table,) in admin.execute(UNLOGGED).fetchall():
                admin.execute(f"truncate {table}")


@pytest.fixture
def interrupted(team, dsn, admin_database_dsn, monkeypatch):
    """Every statement passes by: those of the worker's own database, those at the source, and those at the target."""
    at = Interrupted()
    at.admin_dsn = admin_database_dsn
    own = Faulty(dsn, lambda name, act: at(name, act, DatabaseAway("the connection is lost")))
    worker = Engine(
        own, pipelines.PIPELINES, team.engine.settings, team.office.queues,
        monotonic=team.clock.monotonic, sleep=team.clock.sleep,
    )  # fmt: skip
    monkeypatch.setattr(steps, "context", lambda: pipelines.Context(worker.settings, own, worker))

    real_result, real_open = Target._result, Target.__init__

    class Watching:
        """The target's connection, each of whose statements may go wrong."""

        def __init__(self, connection: psycopg.Connection):
            self.__dict__["real"] = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self.real, name)

        def __setattr__(self, name: str, value: Any) -> None:
            setattr(self.real, name, value)

        def execute(self, statement: str, *more: Any, **options: Any) -> Any:
            return at("target", lambda: self.real.execute(statement, *more, **options), LOST)

    def opened(self: Target, *arguments: Any) -> None:
        real_open(self, *arguments)
        at.target = self._connection
        self._connection = Watching(self._connection)

    def asked(self: Target, statement: str) -> Any:
        return at("target, long", lambda: real_result(self, statement), LOST)

    def stage(self: Target, batches: Any, **more: Any) -> int:
        lost = TargetError("target_unreachable", {"relation": "mart.trees"})  # as a copy that breaks off tells it
        return at("target, copy", lambda: real_stage(self, batches, **more), lost)

    real_stage = Target.stage
    monkeypatch.setattr(Target, "__init__", opened)
    monkeypatch.setattr(Target, "_result", asked)
    monkeypatch.setattr(Target, "stage", stage)
    monkeypatch.setattr("chalicelib.pipelines.refresh.target.sql.Literal.as_string", literal)

    real_reach, real_rows = relation.reach, relation.rows_of

    def reached(address: str) -> Any:
        connection = at("source, connect", lambda: real_reach(address), LOST)
        wait = connection.wait
        connection.wait = lambda *asked, **options: at("source", lambda: wait(*asked, **options), LOST)
        return connection

    def rows(connection: Any, statement: str) -> Any:
        came: list[Any] = []
        try:
            at("source, copy", lambda: came.extend(real_rows(connection, statement)), LOST)
        finally:
            yield from came  # also what came before it broke off

    monkeypatch.setattr(relation, "reach", reached)
    monkeypatch.setattr(relation, "rows_of", rows)
    at.worker = worker
    yield at
    own.close()


def literal(self: Any, context: Any = None) -> str:
    """Without a connection: ours is wrapped."""
    return "'" + str(self._obj).replace("'", "''") + "'"


def tell(team: Any, at: Interrupted, number: int | None, mode: str) -> list[str]:
    """One refresh of both contracts with the n-th call going wrong, to its quiet end; the calls."""
    team.admin.execute("truncate mart.trees, mart.parks, mart.history; truncate refresh.audit")
    team.admin.execute("delete from engine.job")
    team.admin.execute("insert into mart.trees values (1, 'old'), (77, 'gone')")
    team.admin.execute("truncate mart.history")
    at.worker.db.close()
    job = team.refresh()
    at.start(number, mode)
    try:
        at.worker.work("work", job=job, until=lambda: 900.0)
    except (Died, DatabaseAway, *map(psycopg.errors.lookup, CONFLICTS)):
        at.worker.db.close()
    calls = list(at.calls)
    at.start(None, "")
    for _ in range(8):
        if team.engine.status(job).status in ("succeeded", "failed"):
            break
        team.clock.advance("62 s")
        team.engine.recover()
        at.worker.work_on("work", [], lambda: 900.0)
    told = f"call {number} ({calls[-1:]}), {mode}"
    ended = team.engine.status(job)
    assert ended.status == "succeeded", (told, ended)
    assert team.target() == team.target("mart.parks") == team.source(), told
    assert team.history() == [("DELETE", 1), ("INSERT", 5), ("UPDATE", 1)], told
    audits = team.audits(job)
    assert {name: row["inserted"] for name, row in audits.items()} == {"trees": 5, "parks": 6}, told
    return calls


@pytest.mark.parametrize("mode", MODES)
def test_a_refresh_interrupted_at_every_statement_ends_as_if_nothing_had_been(team, interrupted, mode):
    make(team, "parks")
    team.admin.execute("delete from src.trees where id > 6")
    team.register({"chunk_rows": 4}, other("parks", depends_on=["trees"]))
    calls = tell(team, interrupted, None, "")
    assert len(calls) > 60
    assert sum(call.startswith("source") for call in calls) > 30
    for number, call in enumerate(calls):
        if call != "source" or mode == "request lost":  # reading changes nothing: its other ends are the neighbours'
            tell(team, interrupted, number, mode)
    for _ in range(2):
        team.office.clean_up()
        team.clock.advance("20 min")
    assert team.staging() == []
