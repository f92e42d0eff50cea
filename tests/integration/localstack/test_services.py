"""Services outlive their command, are found by the next one, and end, whatever was killed."""

import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localstack import services
from localstack.postgresql import free_ports
from localstack.services import Service, ServiceError

SERVER = """
import http.server, signal, sys
if "stubborn" in sys.argv: signal.signal(signal.SIGTERM, signal.SIG_IGN)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


@pytest.fixture
def port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def folder(tmp_path: Path, port: int) -> Iterator[Path]:
    made = tmp_path / "a stack"
    made.mkdir()
    yield made
    for process in service(made, port).processes():
        process.kill()


def service(folder: Path, port: int, *arguments: str, **more: str) -> Service:
    def ready() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=1):
                return True
        except OSError:
            return False

    command = [sys.executable, "-c", SERVER, str(port), *arguments]
    return Service("web", folder, port, command, {"PATH": "/usr/bin:/bin"} | more, ready)


def pid(found: Service) -> int:
    (process,) = found.processes()
    return process.pid


def test_the_next_command_finds_it_running(folder: Path, port: int) -> None:
    assert service(folder, port).start()
    first = pid(service(folder, port))

    assert not service(folder, port).start()
    assert pid(service(folder, port)) == first
    assert psutil.Process(first).ppid() != first
    assert not Service("other", folder, port, ["x"], {}, lambda: True).running()
    assert not service(folder.parent, port).running()


def test_one_that_was_killed_is_started_again(folder: Path, port: int) -> None:
    service(folder, port).start()
    first = psutil.Process(pid(service(folder, port)))
    first.kill()
    first.wait(10)

    assert service(folder, port).start()
    assert pid(service(folder, port)) != first.pid


def test_one_that_runs_on_other_settings_or_other_code_is_started_again(folder: Path, port: int) -> None:
    service(folder, port).start()

    assert service(folder, port, SETTING="new").start()
    assert not service(folder, port, SETTING="new").start()
    assert len(list(service(folder, port).processes())) == 1


def test_one_that_doesnt_want_to_end_is_ended(folder: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "STOP_SECONDS", 0.2)
    service(folder, port, "stubborn").start()
    process = psutil.Process(pid(service(folder, port)))

    service(folder, port).stop()
    assert not process.is_running()
    assert not service(folder, port).running()


def test_a_port_of_somebody_else_and_a_missing_program_are_said(folder: Path, port: int) -> None:
    service(folder, port).start()
    with pytest.raises(ServiceError, match=f"Port {port} of other is taken"):
        Service("other", folder, port, [sys.executable], {}, lambda: True).start()
    with pytest.raises(ServiceError, match="make env"):
        Service("other", folder, port, [folder / "nothing"], {}, lambda: True).start()


def test_one_that_dies_at_once_says_its_last_words(folder: Path, port: int) -> None:
    dying = Service("web", folder, port, [sys.executable, "-c", "raise SystemExit('why')"], {}, lambda: False)
    with pytest.raises(ServiceError, match="why"):
        dying.start()
