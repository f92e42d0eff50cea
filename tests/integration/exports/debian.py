"""Debian's PostgreSQL 15 with TLS and a standby: an older server than Leaseway's own, as an office may have it."""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import psycopg

from localstack.postgresql import CHILD_ENVIRONMENT, account, free_ports
from tests import debian

BINARIES = Path("usr/lib/postgresql/15/bin")
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "max_standby_streaming_delay": "0",  # a standby that never waits for a query
    "hot_standby_feedback": "off",
    "wal_receiver_status_interval": "1s",
    "ssl": "on",
}


class Servers:
    """Servers whose programs lie where Debian puts them, in one folder that the account they run as can reach."""

    def __init__(self, folder: Path, binaries: Path, environment: dict[str, str]):
        self.folder = folder
        self._account = account()
        self._binaries, self._environment = binaries, environment
        self._running: list[subprocess.Popen[bytes]] = []

    def stop(self) -> None:
        for server in reversed(self._running):
            server.send_signal(signal.SIGINT)
            server.wait(30)

    def _serve(self, data: Path, dsn: str, settings: Mapping[str, object]) -> None:
        """Start a server over a folder of data, and return when it answers."""
        with (self.folder / f"{data.name}.log").open("ab") as log:
            self._running.append(
                subprocess.Popen(
                    [self._binaries / "postgres", "-D", data, *(f"--{key}={value}" for key, value in settings.items())],
                    **self._account.popen(),
                    cwd="/",
                    env=self._environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
            )
        end = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(dsn, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, (self.folder / f"{data.name}.log").read_text()

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [self._binaries / program, *(str(argument) for argument in arguments)],
            **self._account.popen(),
            cwd="/",
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


class Debian15(Servers):
    """A primary and its standby in one folder, which the account that PostgreSQL runs as can reach."""

    def __init__(self, folder: Path):
        binaries, environment = Path("/") / BINARIES, CHILD_ENVIRONMENT
        if not (binaries / "postgres").exists():
            binaries = folder / "debian" / BINARIES
            environment = CHILD_ENVIRONMENT | debian.unpack(folder / "debian", "postgresql-15", "postgresql-client-15")
        super().__init__(folder, binaries, environment)
        self.password = secrets.token_urlsafe(16)
        self.authority = folder / "authority.pem"
        self._ports = free_ports(2)

    @property
    def primary(self) -> str:
        return self._dsn(0)

    @property
    def standby(self) -> str:
        return self._dsn(1)

    def _dsn(self, n: int) -> str:
        return f"postgresql://postgres:{self.password}@127.0.0.1:{self._ports[n]}/postgres"

    def start(self) -> None:
        password = self.folder / "password"
        password.write_text(self.password)
        self._own(password)
        data = self.folder / "primary"
        self._run(
            "initdb", f"--pgdata={data}", "--username=postgres", f"--pwfile={password}",
            "--auth=scram-sha-256", "--encoding=UTF8", "--locale=C",
        )  # fmt: skip
        self._certify(data)
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write("host replication all 127.0.0.1/32 scram-sha-256\n")
        self._serve(data, self.primary, SETTINGS | {"port": self._ports[0]})
        copy = self.folder / "standby"
        self._run("pg_basebackup", f"--dbname={self.primary}", f"--pgdata={copy}", "-R", "-X", "stream", "-c", "fast")
        self._serve(copy, self.standby, SETTINGS | {"port": self._ports[1]})

    def caught_up(self) -> None:
        """Return when the standby has replayed all that the primary has written."""
        end = time.monotonic() + 30
        with psycopg.connect(self.primary) as primary, psycopg.connect(self.standby, autocommit=True) as standby:
            at = primary.execute("select pg_current_wal_flush_lsn()").fetchone()[0]
            while not standby.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", [at]).fetchone()[0]:
                assert time.monotonic() < end

    def _certify(self, data: Path) -> None:
        """A certificate of an authority of our own, for db.test."""
        key, request = data / "server.key", self.folder / "request.pem"
        authority_key = self.folder / "authority.key"
        names = ("-subj", "/CN=db.test", "-addext", "subjectAltName=DNS:db.test")
        for command in (
            ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=authority",
             "-keyout", authority_key, "-out", self.authority),
            ("req", "-newkey", "rsa:2048", "-nodes", *names, "-keyout", key, "-out", request),
            ("x509", "-req", "-in", request, "-CA", self.authority, "-CAkey", authority_key, "-CAcreateserial",
             "-copy_extensions", "copy", "-days", "2", "-out", data / "server.crt"),
        ):  # fmt: skip
            subprocess.run(["openssl", *command], check=True, capture_output=True)
        for file in (key, data / "server.crt"):
            file.chmod(0o600)
            self._own(file)

    def _own(self, path: Path) -> None:
        os.chown(path, self._account.uid, self._account.gid)
