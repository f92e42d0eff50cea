import psycopg
import pytest

from chalicelib.db import Database
from chalicelib.engine import Engine
from tests import toy


@pytest.fixture
def lossy(dsn, clock, settings, queues):
    """An engine whose connection loses requests and replies."""
    toy.behaviour.clear()
    database = toy.Lossy(dsn)
    yield Engine(database, toy.PIPELINES, settings, queues, monotonic=clock.monotonic, sleep=clock.sleep)
    database.close()


BROKEN = """
create or replace function engine.broken() returns trigger language plpgsql as $$
begin
    if new.kind = any (tg_argv) and new.job_id in (select id from engine.job where subject ->> 'name' like 'bad%')
       or new.kind = any (tg_argv) and new.kind = 'failed' then
        raise exception 'e-mail someone@example.org' using errcode = '{}';
    end if;
    return new;
end $$;
create or replace trigger broken before insert on engine.job_event for each row execute function engine.broken({});
"""


@pytest.fixture
def break_events(admin_database_dsn):
    """Make the statements that write these kinds of events fail, for jobs called bad; without any all is well again."""
    with psycopg.connect(admin_database_dsn, autocommit=True) as admin:

        def install(*kinds, sqlstate="P0001"):
            admin.execute(BROKEN.format(sqlstate, ", ".join(repr(kind) for kind in kinds)))

        yield install
        admin.execute("drop trigger if exists broken on engine.job_event; drop function if exists engine.broken")


@pytest.fixture
def other(dsn):
    """Somebody else's connection."""
    database = Database(dsn)
    yield database
    database.close()
