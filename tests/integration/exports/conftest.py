"""A source's database, as far from friendly as it gets, and a reader that may do little."""

import os
import secrets
import shutil
import tempfile
from pathlib import Path

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from localstack.postgresql import account
from tests.debian import NotToBeHad

from .debian import Debian15

# Whoever looks for a function, operator, type or table of PostgreSQL's by its name alone finds one of these, and fails:
# what is called raises an error, what is read has no columns.
SHADOWS = """
create schema nowhere;
do $$
declare made text;
begin
    for made in
        select format('create type nowhere.%I as (shadow int)', typname)
          from pg_type where typnamespace = 'pg_catalog'::regnamespace and typtype = 'b' and typelem = 0
        union all
        select format('create function nowhere.%I(%s) returns %s language internal as ''trigger_in'''
                     , proname, pg_get_function_identity_arguments(oid), pg_get_function_result(oid))
          from pg_proc
         where pronamespace = 'pg_catalog'::regnamespace and prokind = 'f' and not proretset
           and 'internal'::regtype <> all (proargtypes::oid[])
           and (select typtype from pg_type where oid = prorettype) <> 'p'
        union all
        select format('create function nowhere.%I(%s) returns setof %s language internal as ''trigger_in'''
                     , proname, pg_get_function_identity_arguments(oid), prorettype::regtype)
          from pg_proc where pronamespace = 'pg_catalog'::regnamespace and proname = 'unnest' and pronargs = 1
        union all
        select format('create function nowhere.%1$I(%2$s) returns int language internal as ''trigger_in'';'
                      'create aggregate nowhere.%3$I(%4$s) (sfunc = nowhere.%1$I, stype = int)', 'step_' || oid
                     , concat_ws(', ', 'int', nullif(arguments, '')), proname, coalesce(nullif(arguments, ''), '*'))
          from pg_proc, pg_get_function_identity_arguments(oid) as arguments
         where pronamespace = 'pg_catalog'::regnamespace and prokind = 'a' and arguments !~ 'ORDER BY|VARIADIC'
        union all
        select format('create operator nowhere.%s (%s function = nowhere.%I)', oprname
                     , case when oprleft > 0 then format('leftarg = %s, ', oprleft::regtype) end
                       || format('rightarg = %s, ', oprright::regtype), proname)
          from pg_operator join pg_proc on pg_proc.oid = oprcode
         where oprnamespace = 'pg_catalog'::regnamespace and oprleft > 0
           and pronamespace = 'pg_catalog'::regnamespace and (select typtype from pg_type where oid = prorettype) <> 'p'
        union all
        select format('create table nowhere.%I ()', relname)
          from pg_class where relnamespace = 'pg_catalog'::regnamespace and relkind in ('r', 'v')
        union all
        select 'grant usage on schema nowhere to public'
    loop
        execute made;
    end loop;
end $$;
"""


class Source:
    """A database of a test's own with a login that may read the schema `open` and nothing else."""

    def __init__(self, server, options):
        self.name = f"source_{secrets.token_hex(4)}"
        self._server = server
        self._run_at_server(f"create database {self.name} template template0 {options}")
        self._run_at_server(f"create role {self.name} login password 'only-reads'")
        self.dsn = make_conninfo(server, dbname=self.name, user=self.name, password="only-reads")
        self.admin = psycopg.connect(make_conninfo(server, dbname=self.name), autocommit=True)
        self.run("create schema open")
        self.run(f"grant usage on schema open to {self.name}")
        self.run(f"alter default privileges in schema open grant select on tables to {self.name}")

    def run(self, statement, *params):
        return self.admin.execute(statement, params or None)

    def set(self, **settings):
        for name, value in settings.items():
            self.run(
                sql.SQL("alter role {} set {} = {}").format(sql.Identifier(self.name), sql.Identifier(name), value)
            )

    def shadow(self):
        """Whatever the reader calls by its name alone isn't PostgreSQL's."""
        self.run(SHADOWS)
        self.run(f"alter role {self.name} set search_path = nowhere, pg_catalog")

    def _run_at_server(self, statement):
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(statement)

    def drop(self):
        self.admin.close()
        self._run_at_server(f"drop database {self.name} with (force)")
        self._run_at_server(f"drop role {self.name}")


@pytest.fixture
def make_source(admin_dsn):
    made = []

    def make(options=""):
        made.append(Source(admin_dsn, options))
        return made[-1]

    yield make
    for source in made:
        source.drop()


@pytest.fixture
def source(make_source):
    return make_source()


@pytest.fixture(scope="session")
def debian():
    """Debian's PostgreSQL 15, with TLS and a standby."""
    if not shutil.which("openssl"):
        pytest.skip("there is no openssl")
    folder = Path(tempfile.mkdtemp(prefix="leaseway-debian-"))
    os.chown(folder, account().uid, account().gid)
    try:
        server = Debian15(folder)
    except NotToBeHad as error:
        pytest.skip(f"there is no PostgreSQL 15: {error}")
    try:
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def old_source(debian):
    """A source of its own on Debian's server, whose texts are in the order of a dictionary."""
    source = Source(debian.primary, "locale_provider icu icu_locale 'en' locale 'C' encoding 'UTF8'")
    yield source
    source.drop()
