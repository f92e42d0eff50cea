"""The pipeline that is measured: one step, which does nothing."""

from collections.abc import Sequence
from uuid import UUID

from pydantic import BaseModel, SecretStr

from chalicelib.db import Database
from chalicelib.engine import Advance, Engine, Leased, Pipeline, Step
from chalicelib.settings import Settings


class Nothing(BaseModel):
    name: str


def step(job: Leased[Nothing]) -> Advance:
    return Advance()


EMPTY = Pipeline(name="empty", subject=Nothing, steps=[Step("WORK", "tests.bench.pipeline:step")], done="WORKED")


class Acknowledging:
    """A queue that has everything at once: SQS's time isn't ours."""

    def send(self, queue: str, messages: Sequence[tuple[UUID, int]], *, inline: bool = False) -> set[UUID]:
        return {job for job, _ in messages}


def engine(dsn: str, **settings: float) -> Engine:
    """An engine over a connection of its own."""
    made = Settings(database_url=SecretStr(dsn), hash_key=SecretStr("x" * 32), **settings)
    return Engine(Database(dsn), {EMPTY.name: EMPTY}, made, Acknowledging())


JOBS = """
insert into engine.job (id, pipeline, queue, subject, state, attempts, claim_id, lease_owner, accepted_at, started_at
                      , run_at, locked_until, deadline_at, finished_at, queue_budget, run_budget)
select {id}, 'empty', 'work', '{{"name": "n"}}', {rest}, interval '1 day', interval '6 hours'
  from generate_series(1, {number}) as g, (select clock_timestamp() as now) as clock
"""

QUEUED = "'REQUESTED', 0, null, null, now, null, now, now + interval '30 minutes', now + interval '30 hours', null"
EXPIRED = (
    "'WORK', 1, engine.next_claim(), gen_random_uuid(), now - interval '1 hour', now - interval '1 hour'"
    ", now - interval '1 hour', now - interval '1 minute' + g * interval '1 microsecond'"
    ", now + interval '5 hours', null"
)
FINISHED = (
    "'WORKED', 1, engine.next_claim(), null, now - interval '1 hour', now - interval '1 hour'"
    ", null, null, null, now - interval '1 hour'"
)
"""Rows of engine.job as the engine's own statements leave them."""

ID = "lpad(to_hex(g), 32, '0')::uuid"
"""An id that can be counted up to: what stands for the message that names the job."""

CLEAR = "truncate engine.job, engine.outbox, engine.job_event, engine.failure, engine.schedule cascade"


def jobs(rest: str, number: int, id: str = "uuidv7()") -> str:
    """The statement that makes so many jobs of a kind."""
    return JOBS.format(id=id, rest=rest, number=number)


def swept(number: int) -> list[str]:
    """The statements after which so many jobs were accepted, claimed, finished and swept, in tables that are empty."""
    return [
        jobs(QUEUED, number),
        "insert into engine.outbox (job_id, queue, run_at, send_at) select id, queue, run_at, run_at from engine.job",
        "delete from engine.outbox",
        "update engine.job set state = 'WORK', attempts = 1, claim_id = engine.next_claim()"
        ", lease_owner = gen_random_uuid(), started_at = clock_timestamp()",
        "update engine.job set state = 'WORKED', finished_at = clock_timestamp(), lease_owner = null, run_at = null"
        ", locked_until = null, deadline_at = null",
        "delete from engine.job",
    ]
