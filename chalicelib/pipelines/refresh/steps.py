"""The one step of a refresh: its contracts, each after those that it depends on, each at most once."""

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from typing import Any

import psycopg

from chalicelib import telemetry
from chalicelib.datasets import registry as datasets
from chalicelib.db import BUSY, DatabaseAway, Transaction
from chalicelib.engine import Cancelled, Finished, Leased, LeaseLost, Outage, PermanentFailure, TooLate, Wait
from chalicelib.engine.model import Failing
from chalicelib.exports.errors import SourceError
from chalicelib.exports.formats import Column
from chalicelib.exports.relation import Relation, Source, snapshot
from chalicelib.pipelines import context
from chalicelib.pipelines.addresses import address
from chalicelib.pipelines.export.slots import slot

from . import RefreshSubject, registry
from .chunks import Chunks
from .manifest import Contract, Manifest
from .target import ChecksFailed, Seen, Target, TargetError, drop_staging

OUTAGES = {"source_unreachable", "source_conflict", "target_unreachable", "target_conflict", "staging_mismatch"}
"""What passes by itself: the contract is come back to, and spends no attempt."""

MARGIN = 5.0
"""Seconds that are left of an invocation, beside those that a COMMIT may take, when its work is handed over."""


class ContractFailed(Exception):
    """Trying this contract again wouldn't help: a code, its details, and what the checks have seen."""

    def __init__(self, code: str, details: dict[str, Any] | None = None, seen: Seen | None = None):
        super().__init__(code)
        self.code = code
        self.details = details or {}
        self.seen = seen or Seen()


class TimeIsUp(Exception):
    """The invocation is nearly over: what isn't committed is rolled back, and the next one goes on."""


class NoSlot(Exception):
    """All slots of the source's connection are taken; worth another look in ``pause`` seconds."""

    def __init__(self, pause: float):
        super().__init__()
        self.pause = pause


def refresh_targets(job: Leased[RefreshSubject]) -> Finished | Wait:
    """Run the contracts that have no audit yet; finish, or fail with `contract_failed` where one didn't succeed.

    What is away holds up its own contract and those that depend on it; the others go on meanwhile.
    """
    return _Refresh(job).run()


class _Refresh:
    def __init__(self, job: Leased[RefreshSubject]):
        self._job = job
        self._db = context().db
        self._number = job.subject.manifest
        self._fresh = True  # nothing has been done yet since it was claimed
        self._mark: dict[str, Any] = {}  # the checkpoint: the contract at work, its records staged, whether it was late
        self._records = 0
        self._committing = False  # the contract's target may have been changed
        self._staging: tuple[str, str] | None = None  # where the contract's records may be staged: database, table

    def run(self) -> Finished | Wait:
        found = registry.manifest(self._db, self._number)
        assert found is not None  # versions stay for ever
        held_up: dict[str, Outage | NoSlot] = {}
        for index, contract in enumerate(Manifest.parse(found["body"]).in_order()):
            outcomes = registry.outcomes(self._db, self._job.id)
            if contract.name in outcomes:
                continue
            if waiting := next((held_up[name] for name in contract.depends_on if name in held_up), None):
                held_up[contract.name] = waiting
                continue
            self._at_a_boundary()
            try:
                self._one(contract, index, [outcomes[name] for name in contract.depends_on])
            except (Outage, NoSlot) as error:
                held_up[contract.name] = error
            except TimeIsUp:
                return Wait(0)
            self._fresh = False
        for waiting in held_up.values():
            if isinstance(waiting, NoSlot):
                return Wait(waiting.pause, waiting_for="free_connection")
            raise waiting
        return self._finish()

    def _at_a_boundary(self) -> None:
        """Between two contracts a cancellation, a lost lease and the switch are heard."""
        self._job.heartbeat(force=True, records=self._records)
        if not registry.switch(self._db)["enabled"]:
            raise PermanentFailure("not_enabled")

    def _finish(self) -> Finished:
        bad = [row for row in registry.audits(self._db, self._job.id) if row["outcome"] == "failed"]
        if bad:
            raise PermanentFailure("contract_failed", contract=bad[0]["contract"], found=len(bad))
        with self._job.transaction() as tx:
            self._job.finish(tx, version=self._number)  # the number keeps the job for ever: it is the record
        return Finished()

    # One contract

    def _one(self, contract: Contract, index: int, before: Sequence[str]) -> None:
        started_at, self._committing, self._staging = self._clock(), False, None
        try:
            if any(outcome != "refreshed" for outcome in before):
                with self._holding() as tx:
                    self._audit(tx, contract, "skipped", started_at, code="dependency_failed")
                return
            self._mark = {"contract": contract.name}
            if self._job.checkpoint and self._job.checkpoint["contract"] == contract.name:
                self._mark = self._job.checkpoint
            with self._naming_faults(contract):
                self._refresh(contract, index, started_at)
        except ContractFailed as failed:
            seen = failed.seen
            with self._holding() as tx:
                self._audit(
                    tx,
                    contract,
                    "failed",
                    started_at,
                    code=failed.code,
                    details=failed.details,
                    checks=seen.checks,
                    watermark=seen.watermark,
                    read=seen.read,
                    rejected=seen.rejected,
                )
            # Only now: whoever is stale got no audit, and the table may be another one's by then.
            if self._staging:
                with suppress(TargetError):  # cleanup drops it
                    drop_staging(*self._staging)

    @contextmanager
    def _naming_faults(self, contract: Contract) -> Iterator[None]:
        """What source and target did becomes the contract's wait or failure."""
        try:
            yield
        except (SourceError, TargetError) as error:
            if error.code in OUTAGES:
                raise Outage(error.code, **error.details) from error
            raise ContractFailed(error.code, error.details) from error
        except ChecksFailed as error:
            raise ContractFailed("check_failed", seen=error.seen) from error
        except TimeIsUp:
            # Claimed late in an invocation it may have had little time; the next one, woken for it alone, has all.
            if self._fresh and self._mark.get("late"):
                raise ContractFailed("outlasts_invocation") from None
            if self._fresh:
                self._save(late=True)
            raise
        except PermanentFailure as error:
            raise ContractFailed(error.code, error.details) from error
        except (ContractFailed, NoSlot, Failing, LeaseLost, Cancelled, TooLate, DatabaseAway, *BUSY):
            raise  # BUSY is our own database: the target's is a TargetError
        except Exception as error:
            if self._committing:
                raise  # what became of the target is read back by the next attempt
            # A defect that one contract meets is no reason to leave the others as they were.
            telemetry.failure("contract_broken", error, job=self._job.id, pipeline="refresh", contract=contract.name)
            details = {"exception": type(error).__name__}
            if isinstance(error, psycopg.Error) and error.sqlstate:
                details["sqlstate"] = error.sqlstate
            raise ContractFailed("internal_error", details) from error

    def _refresh(self, contract: Contract, index: int, started_at: datetime) -> None:
        connection = datasets.connection(self._db, contract.target.connection)
        assert connection is not None  # what a job's manifest names isn't removed
        dsn = address(connection)
        staging = f"refresh_{self._job.id.hex}_{index}"
        self._job.note("refresh_staging", {"connection": connection["name"], "table": staging})
        self._staging = (dsn, staging)
        target = Target(dsn, contract, self._job.claim_id, staging, self._beat, connection["statement_timeout"])
        with closing(target):
            applied = self._take(target, contract)
            if applied is None:
                unkeyed = self._stage(target, contract)
                self._merge(target, contract, unkeyed, started_at)
            else:
                with self._holding() as tx:
                    self._audit(tx, contract, "refreshed", **applied)

    def _take(self, target: Target, contract: Contract) -> dict[str, Any] | None:
        """Take the target's fence; what this very job has applied there already, before its reply was lost."""
        fence, applied = target.take()
        if fence > self._job.claim_id:
            with self._db.transaction() as tx:
                newest = context().engine.fence(tx)
            if fence > newest:
                raise ContractFailed("fence_regressed")
            raise LeaseLost
        # Of two contracts with one table, through connections that reach the same database, each has its own.
        mine = (str(self._job.id), contract.name)
        if applied and (applied.pop("job"), applied.pop("contract")) == mine:
            return applied
        return None

    def _stage(self, target: Target, contract: Contract) -> int:
        """Copy the source into the staging table; how many records were left there, for they have no key.

        In one snapshot; with chunk_rows in chunks by the key, so that another invocation can go on where this one ends,
        in a snapshot of its own.
        """
        source = datasets.source(self._db, contract.source, contract.source_revision)
        assert source is not None  # pinned at registration, and revisions stay
        connection = datasets.connection(self._db, source["connection"])
        assert connection is not None  # a foreign key holds it
        relation = Relation(
            connection_dsn=address(connection),
            relation=source["relation"],
            query=source["query"],
            columns=[
                Column(column.name, column.type, column.source_name or column.name) for column in contract.columns
            ],
            statement_timeout=connection["statement_timeout"],
            name=source["name"],
        )
        with slot(self._db, self._job, connection["name"]) as pause:
            if pause is not None:
                raise NoSlot(pause)
            with snapshot(relation) as records:
                if records.identity() == target.identity:
                    raise ContractFailed("target_is_source", {"relation": contract.target.table})
                if contract.chunk_rows is None:
                    target.begin_staging()
                    target.stage(self._counted(records))
                    return 0
                return self._stage_chunks(target, contract, records, contract.chunk_rows)

    def _stage_chunks(self, target: Target, contract: Contract, records: Source, size: int) -> int:
        # There may be a chunk more, whose number wasn't saved; where there are fewer records, a crash took them all.
        if "staged" not in self._mark or not target.resume_staging(self._mark["staged"]):
            target.begin_staging()
            self._save(staged=0)
        chunks = Chunks(contract, size)
        while target.stage(self._counted(records, chunks.after(target.last_key()), chunks.key), keyed=True) >= size:
            self._fresh = False
            self._save(staged=target.staged, late=False)
            self._beat()
        unkeyed = 0
        for counted in records.count(chunks.without_key):
            self._beat()
            unkeyed = counted or 0
        return unkeyed

    def _merge(self, target: Target, contract: Contract, unkeyed: int, started_at: datetime) -> None:
        """Check the staged records and bring them into the target, in one transaction there under both fences."""
        settings = context().settings
        fresh, last = contract.checks.freshness, registry.last_run(self._db, contract.target.id)
        bound = (self._clock() - fresh.at_most).isoformat() if fresh else None
        with target.merging():
            seen = target.check(unkeyed, bound, last["came"] if last else None)
            counts = target.merge()
            applied = {
                "read": seen.read,
                "rejected": seen.rejected,
                **counts,
                "checks": seen.checks,
                "watermark": seen.watermark,
                "started_at": started_at.isoformat(),
            }
            target.settle({"job": str(self._job.id), "contract": contract.name, **applied})
            # The target's own fence keeps out who is stale there; this, whose job was ended meanwhile. Its server is
            # told first to take no late COMMIT: it gives up before the lease ends, our own server lets the job go, or
            # we stop listening, wherever this process is stopped or its COMMIT held up.
            target.expire(settings.store_timeout / 2)
            self._job.require(settings.store_timeout)
            with self._holding() as tx:
                self._committing = True
                target.commit(settings.store_timeout)
                self._audit(tx, contract, "refreshed", **applied)

    # What they have in common

    def _counted(self, records: Source, tail: str = "", *more: str) -> Iterator[list[memoryview]]:
        for batch in records.rows(tail, *more):
            self._records += len(batch)
            self._beat()
            yield batch

    def _save(self, **more: int) -> None:
        self._mark = self._mark | more
        self._job.save(self._mark)

    def _beat(self) -> None:
        self._job.heartbeat(records=self._records)
        if self._job.seconds_left() < context().settings.store_timeout + MARGIN:
            raise TimeIsUp

    @contextmanager
    def _holding(self) -> Iterator[Transaction]:
        """A transaction during which the job can't be taken away."""
        with self._job.transaction() as tx:
            self._job.hold(tx)
            yield tx

    def _audit(self, tx: Transaction, contract: Contract, outcome: str, started_at: Any, **said: Any) -> None:
        fence = self._job.claim_id
        registry.add_audit(
            tx, self._job.id, self._number, contract, outcome, fence=fence, started_at=started_at, **said
        )

    def _clock(self) -> datetime:
        return registry.clock(self._db)
