import socket
import subprocess
import sys
from pathlib import Path

import pytest

from chalicelib.catalog.store import GraphStore


class Oxigraph:
    """A real Oxigraph server with a store of its own on disk."""

    def __init__(self, folder: Path):
        self.folder = folder
        listens = False
        while not listens:  # a port that was free a moment ago may be taken
            with socket.create_server(("127.0.0.1", 0)) as free:
                self.port = free.getsockname()[1]
            listens = self.start()
        self.url = f"http://127.0.0.1:{self.port}"

    def start(self) -> bool:
        program = Path(sys.executable).with_name("oxigraph")
        command = [program, "serve", "--location", self.folder, "--bind", f"127.0.0.1:{self.port}"]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        told = self.process.stderr.readline()
        if "Listening" not in told and "in use" not in told:
            raise AssertionError(told)
        return "Listening" in told

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
