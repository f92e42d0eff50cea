"""PostGIS on Debian's PostgreSQL 15, unpacked side by side: a server is looked for where its program lies."""

import shutil
from pathlib import Path

from localstack.postgresql import CHILD_ENVIRONMENT, free_ports
from tests import debian

from .debian import BINARIES, Servers

PACKAGES = ("postgresql-15", "postgresql-client-15", "postgresql-15-postgis-3", "postgresql-15-postgis-3-scripts")


class PostGIS(Servers):
    """A server that has it. Raises debian.NotToBeHad."""

    def __init__(self, folder: Path):
        root = folder / "debian"
        needed = debian.unpack(root, *PACKAGES, without=("libgdal32", "libsfcgal1"))  # rasters, solids
        super().__init__(folder, root / BINARIES, CHILD_ENVIRONMENT | needed)
        extensions = root / "usr/share/postgresql/15/extension"
        shutil.copy(extensions / "postgis-3.control", extensions / "postgis.control")  # what installing it would do
        [self._port] = free_ports(1)

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        data = self.folder / "data"
        self._run("initdb", f"--pgdata={data}", "--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C")
        settings = {"port": self._port, "listen_addresses": "127.0.0.1", "unix_socket_directories": "", "fsync": "off"}
        self._serve(data, self.dsn, settings)
