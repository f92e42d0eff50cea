"""Slots of a connection: at most so many exports use it at a time."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from chalicelib.db import Database, DatabaseAway, statements
from chalicelib.engine import Leased

SQL = statements("chalicelib.pipelines.export")

MIN_PAUSE, MAX_PAUSE = 2, 30
"""Seconds until a job looks again whether there is a slot: a tenth of the time the oldest is held, between these."""


@contextmanager
def slot(db: Database, job: Leased[Any], connection: str) -> Iterator[float | None]:
    """Have one of the connection's slots; where all are taken, the seconds until it is worth another look instead."""
    pause = take(job, connection)
    try:
        yield pause
    finally:
        if pause is None:
            with suppress(DatabaseAway):  # a slot counts no longer than its claim
                db.run(SQL.release_slots, connection=connection, job=job.id, claim=job.claim_id)


def take(job: Leased[Any], connection: str) -> float | None:
    """Take a slot, in a short transaction under the fence; the pause where there is none."""
    with job.transaction() as tx:
        job.hold(tx)
        limit = tx.run(SQL.lock_connection, connection=connection)[0]["max_jobs"]
        found = tx.run(SQL.take_slot, connection=connection, job=job.id, claim=job.claim_id, max_jobs=limit)[0]
    return None if found["taken"] else min(MAX_PAUSE, max(MIN_PAUSE, found["held_for"] / 10))
