"""PgBouncer in transaction mode, as unkind as it gets: of at least three sessions, each transaction has the next."""

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from localstack.postgresql import CHILD_ENVIRONMENT, account, free_ports
from tests import debian

SETTINGS = """
[databases]
* = host={host} port={port} user={login} password={password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {own}
unix_socket_dir =
auth_type = any
pool_mode = transaction
server_round_robin = 1
min_pool_size = 3
default_pool_size = 40
max_client_conn = 200
server_login_retry = 1
log_connections = 0
log_disconnections = 0
"""


@contextmanager
def pooling(admin_dsn: str) -> Iterator[str]:
    """A DSN through the pooler, without its database; whoever comes has the rights and time-outs of the functions.

    PgBouncer knows no option of a connection, so they stand on a login of its own.
    """
    login, password = f"pooled_{secrets.token_hex(4)}", secrets.token_urlsafe(16)
    with psycopg.connect(admin_dsn, autocommit=True) as admin:
        admin.execute(f"create role {login} login password '{password}' in role leaseway_app")
        admin.execute(f"alter role {login} set role = leaseway_app")
        admin.execute(f"alter role {login} set lock_timeout = '10s'")
    folder = Path(tempfile.mkdtemp(prefix="leaseway-pooler-"))
    try:
        with _running(folder, admin_dsn, login, password) as dsn:
            yield dsn
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with psycopg.connect(admin_dsn, autocommit=True) as admin:
            admin.execute(f"drop role {login}")


@contextmanager
def _running(folder: Path, admin_dsn: str, login: str, password: str) -> Iterator[str]:
    program, environment = Path("/usr/sbin/pgbouncer"), CHILD_ENVIRONMENT
    if not program.exists():
        environment = environment | debian.unpack(folder / "debian", "pgbouncer")
        program = folder / "debian/usr/sbin/pgbouncer"
    server, [own] = conninfo_to_dict(admin_dsn), free_ports(1)
    settings = folder / "pgbouncer.ini"
    settings.touch(mode=0o600)
    settings.write_text(
        SETTINGS.format(host=server["host"], port=server.get("port", 5432), login=login, password=password, own=own)
    )
    owner = account()  # PgBouncer refuses to run as root, too
    for path in (folder, settings):
        os.chown(path, owner.uid, owner.gid)
    log = folder / "log"
    with log.open("wb") as output:
        running = subprocess.Popen(
            [program, settings],
            **owner.popen(),
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    dsn = make_conninfo(host="127.0.0.1", port=own, user="anybody")
    try:
        end = time.monotonic() + 30
        while not _answers(make_conninfo(dsn, dbname=server["dbname"])):
            assert time.monotonic() < end, log.read_text()[-2000:]
            assert running.poll() is None, log.read_text()[-2000:]
            time.sleep(0.02)
        yield dsn
    finally:
        running.terminate()
        running.wait(30)


def _answers(dsn: str) -> bool:
    try:
        psycopg.connect(dsn, connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True
