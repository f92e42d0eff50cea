"""PostGIS on Debian's PostgreSQL 15, unpacked side by side: a server is looked for where its program lies."""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg

from localstack.postgresql import CHILD_ENVIRONMENT, account, free_ports
from tests import debian

from .debian import BINARIES

PACKAGES = ("postgresql-15", "postgresql-client-15", "postgresql-15-postgis-3", "postgresql-15-postgis-3-scripts")


class PostGIS:
    """A server in a folder that the account PostgreSQL runs as can reach. Raises debian.NotToBeHad."""

    def __init__(self, folder: Path):
        self.folder = folder
        root = folder / "debian"
        self._environment = CHILD_ENVIRONMENT | debian.unpack(
            root, *PACKAGES, without=("libgdal32", "libsfcgal1")
        )  # rasters, solids
        self._binaries = root / BINARIES
        extensions = root / "usr/share/postgresql/15/extension"
        shutil.copy(extensions / "postgis-3.control", extensions / "postgis.control")  # what installing it would do
        self._account = account()
        [self._port] = free_ports(1)

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        data = self.folder / "data"
        self._run("initdb", f"--pgdata={data}", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
        settings = {"port": self._port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        with (self.folder / "log").open("wb") as log:
            self._server = subprocess.Popen(
                [self._binaries / "postgres", "-D", data, *(f"--{name}={value}" for name, value in settings.items())],
                **self._account.popen(),
                cwd="/",
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end = time.monotonic() + 60
        while True:
            try:
                psycopg.connect(self.dsn, connect_timeout=5).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, (self.folder / "log").read_text()

    def stop(self) -> None:
        self._server.send_signal(signal.SIGINT)
        self._server.wait(30)

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [self._binaries / program, *arguments],
            **self._account.popen(),
            cwd="/",
            env=os.environ | self._environment,
            capture_output=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
