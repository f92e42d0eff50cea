"""A real PostgreSQL for the tests that need one: migrated once, empty for each test, on a clock that stands still.

DATABASE_URL names an administrator's DSN of a running server; without it one is started for the session. POOLER=1 puts
PgBouncer in transaction mode before it.
"""

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from pydantic import SecretStr
from xdist.scheduler import LoadScopeScheduling

from chalicelib.db import Database, migrate
from chalicelib.engine import Engine
from chalicelib.settings import Settings
from localstack.postgresql import PostgreSQL
from tests import toy
from tests.debian import NotToBeHad
from tests.pooler import pooling

PUBLIC_URL = "http://localhost:4000"

TEST_CLOCK = """
create table engine.test_clock (at timestamptz not null);
insert into engine.test_clock values ('2026-03-02 09:00:00+00');
grant select on engine.test_clock to leaseway_app;
create or replace function engine.clock() returns timestamptz
    language sql volatile
    return (select at from engine.test_clock);
update engine.run set since = engine.clock();
"""


# Whatever a test left behind, connections too (a pooler's idle ones stay); foreign keys don't matter where all goes.
EMPTY = """
set local session_replication_role = replica;
select pg_terminate_backend(pid)
  from pg_stat_activity
 where datname = current_database()
   and pid <> pg_backend_pid()
   and not (usename ~ '^pooled_' and state = 'idle');
do $$
declare
    name regclass;
begin
    for name in select oid from pg_class
                 where relkind = 'r' and relnamespace::regnamespace::text in ('engine', 'dataset', 'access', 'refresh')
                   and oid not in ('engine.run'::regclass, 'engine.test_clock'::regclass)
    loop
        execute format('delete from %s', name);
    end loop;
    for name in select oid from pg_class
                 where relkind = 'r' and relnamespace::regnamespace::text in ('store', 'staging')
    loop
        execute format('drop table %s', name);
    end loop;
end
$$;
update engine.test_clock set at = '2026-03-02 09:00:00+00';
update engine.run set since = engine.clock(), finished_at = null, counts = '{}';
"""


class Scheduling(LoadScopeScheduling):
    """Which tests stay with one worker: a file's, or a folder's where one stack is all the folder's.

    The parts of a long proof go to whoever is free: they share nothing but a world, and take hours.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.split("::")[0]
        if file in ("tests/proof/test_stateful.py", "tests/proof/test_interleavings.py"):
            return nodeid
        return next((folder for folder in ("tests/e2e/", "tests/localstack/") if file.startswith(folder)), file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Scheduling:
    return Scheduling(config, log)


class Clock:
    """The database's clock and a worker's stopwatch, both moved by hand."""

    def __init__(self, dsn: str):
        self._seconds = 0.0
        self.connect(dsn)

    def connect(self, dsn: str) -> None:
        """Anew, where the server was restarted."""
        self._connection = psycopg.connect(dsn, autocommit=True)

    def now(self) -> datetime:
        return self._connection.execute("select engine.clock()").fetchone()[0]

    def advance(self, interval: str | timedelta) -> None:
        """By "6 min", "-90 s" or a timedelta."""
        row = self._connection.execute(
            "update engine.test_clock set at = at + %s::interval returning extract(epoch from %s::interval)::float8",
            [interval, interval],
        ).fetchone()
        self._seconds += row[0]

    def set(self, at: str) -> None:
        """To an instant such as "2026-03-29 00:30:00+00"."""
        self._connection.execute("update engine.test_clock set at = %s", [at])

    def monotonic(self) -> float:
        return self._seconds

    def sleep(self, seconds: float) -> None:
        """Nobody waits: the clock does."""
        self.advance(timedelta(seconds=seconds))

    def close(self) -> None:
        self._connection.close()


class FakeQueues:
    """Queues in memory: what was sent, in order; they can be away, or lose the acknowledgement of some."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, UUID, int]] = []
        self.away = False
        self.unacknowledged: set[UUID] = set()

    def send(self, queue: str, messages: Sequence[tuple[UUID, int]], *, inline: bool = False) -> set[UUID]:
        if self.away:
            raise ConnectionError("SQS doesn't answer")
        self.sent += [(queue, job, delay) for job, delay in messages]
        return {job for job, _ in messages} - self.unacknowledged

    def of(self, job: UUID) -> list[int]:
        """The delays of the messages sent for a job."""
        return [delay for _, sent, delay in self.sent if sent == job]


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQL | None]:
    """The session's own server; none where DATABASE_URL names one."""
    if os.environ.get("DATABASE_URL"):
        yield None
        return
    with running_postgresql() as server:
        yield server


@pytest.fixture(scope="session")
def admin_dsn(postgresql: PostgreSQL | None) -> str:
    """The administrator of a PostgreSQL server."""
    return postgresql.dsn if postgresql else os.environ["DATABASE_URL"]


@contextmanager
def running_postgresql(*, durable: bool = False) -> Iterator[PostgreSQL]:
    """A PostgreSQL of one's own, in a folder that no other run of pytest closes to its account."""
    folder = Path(tempfile.mkdtemp(prefix="leaseway-test-"))
    folder.chmod(0o755)  # PostgreSQL's account must pass where root runs the tests
    server = PostgreSQL(folder, durable=durable)
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def bare_template(admin_dsn: str) -> Iterator[str]:
    """The name of a database that is migrated and has its real clock."""
    with _database(admin_dsn) as name:
        migrate(make_conninfo(admin_dsn, dbname=name), PUBLIC_URL)
        yield name


@pytest.fixture(scope="session")
def template(admin_dsn: str, bare_template: str) -> Iterator[str]:
    """The name of a database that is migrated and has the test clock: nothing else ever replaces the real one."""
    with _database(admin_dsn, bare_template) as name:
        with psycopg.connect(make_conninfo(admin_dsn, dbname=name)) as connection:
            connection.execute(TEST_CLOCK)
        yield name


@pytest.fixture(scope="session")
def session_database_dsn(admin_dsn: str, template: str) -> Iterator[str]:
    """The one database that tests have after each other: a clone for each costs 0.1 to 0.4 s, emptying it 5 ms."""
    with _database(admin_dsn, template) as name:
        yield make_conninfo(admin_dsn, dbname=name)


@pytest.fixture
def admin_database_dsn(session_database_dsn: str) -> str:
    """This test's database, empty, as the administrator."""
    with psycopg.connect(session_database_dsn) as connection:
        connection.execute(EMPTY)
    return session_database_dsn


@pytest.fixture(scope="session")
def pooler(admin_dsn: str, template: str) -> Iterator[str]:
    """A DSN through PgBouncer, without its database."""
    try:
        with pooling(admin_dsn) as dsn:
            yield dsn
    except NotToBeHad as error:
        pytest.skip(f"there is no PgBouncer: {error}")


@pytest.fixture
def dsn(admin_database_dsn: str, request: pytest.FixtureRequest) -> str:
    """This test's own database, with the rights of the functions."""
    if os.environ.get("POOLER"):
        return make_conninfo(
            request.getfixturevalue("pooler"), dbname=str(conninfo_to_dict(admin_database_dsn)["dbname"])
        )
    return make_conninfo(admin_database_dsn, options="-c role=leaseway_app -c lock_timeout=10s")


@pytest.fixture
def database(dsn: str) -> Iterator[Database]:
    """This test's own database."""
    database = Database(dsn)
    yield database
    database.close()


@pytest.fixture
def clock(admin_database_dsn: str) -> Iterator[Clock]:
    """The clock of this test's database."""
    clock = Clock(admin_database_dsn)
    yield clock
    clock.close()


@pytest.fixture
def settings(dsn: str) -> Settings:
    """Settings with their defaults."""
    return Settings(database_url=SecretStr(dsn), public_url=PUBLIC_URL, hash_key=SecretStr("test"))


@pytest.fixture
def queues() -> FakeQueues:
    """Queues in memory."""
    return FakeQueues()


@pytest.fixture
def engine(database: Database, clock: Clock, settings: Settings, queues: FakeQueues) -> Engine:
    """An engine with toy pipelines."""
    toy.behaviour.clear()
    return Engine(database, toy.PIPELINES, settings, queues, monotonic=clock.monotonic, sleep=clock.sleep)


@contextmanager
def _database(admin_dsn: str, template: str = "template0") -> Iterator[str]:
    """The name of a database that lives as long as the block."""
    name = f"leaseway_test_{secrets.token_hex(6)}"
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(f'create database "{name}" template "{template}"')
    try:
        yield name
    finally:
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(f'drop database "{name}" with (force)')
