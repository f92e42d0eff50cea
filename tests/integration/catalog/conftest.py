import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.catalog.store import GraphStore


class Oxigraph:
    """A real Oxigraph server with a store of its own on disk."""

    def __init__(self, folder: Path):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = folder
        self.start()

    def start(self) -> None:
        program = Path(sys.executable).with_name("oxigraph")
        command = [program, "serve", "--location", self.folder, "--bind", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert "Listening" in self.process.stderr.readline()

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stderr.close()


@pytest.fixture
def oxigraph(tmp_path):
    server = Oxigraph(tmp_path)
    yield server
    server.stop()


@pytest.fixture
def store(oxigraph):
    return GraphStore(f"{oxigraph.url}/update", f"{oxigraph.url}/query", timeout=10)
