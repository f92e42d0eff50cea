"""A claim on a job: what a step gets, and the only way a worker writes."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from pydantic import BaseModel

from chalicelib.db import Transaction


class Leased[S: BaseModel]:
    """A job that is ours until `locked_until`. Every write carries the claim and checks it in the same statement."""

    id: UUID
    claim_id: int
    pipeline: str
    state: str
    subject: S
    request: BaseModel | None
    attempts: int
    result: dict[str, Any]
    checkpoint: dict[str, Any] | None
    version: int | None

    def seconds_left(self) -> float:
        """Seconds left of this invocation."""
        raise NotImplementedError

    def heartbeat(self, *, force: bool = False, **progress: int) -> None:
        """Extend the lease and report records=, bytes=, total=; at most one write per heartbeat period unless forced."""
        raise NotImplementedError

    def save(self, checkpoint: dict[str, Any]) -> None:
        """Remember where this step is."""
        raise NotImplementedError

    def note(self, kind: str, locator: dict[str, Any]) -> int:
        """Write into the ledger what is about to be created; the same again gives the same row."""
        raise NotImplementedError

    def require(self, seconds: float) -> None:
        """Make sure that the lease outlasts this, or LeaseLost."""
        raise NotImplementedError

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """A short transaction for a finish with other tables: lock the dataset's row first, then `hold`."""
        raise NotImplementedError

    def hold(self, tx: Transaction) -> None:
        """Check the fence and keep the job from being taken away until the transaction ends, or LeaseLost."""
        raise NotImplementedError

    def finish(self, tx: Transaction, *, keep: Iterable[int] = (), version: int | None = None, **result: Any) -> None:
        """Finish the job in the caller's transaction; the step returns Finished() then."""
        raise NotImplementedError
