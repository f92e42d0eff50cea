"""One stack of the tests' own, and the command line as a user has it. A short lease, so that a crash is over soon."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from threading import Event, Thread

import httpx
import pytest

from chalicelib.cli.local import run_function
from localstack.stack import Stack

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "LEASEWAY_STACK": str(ROOT / ".leaseway" / "test" / "e2e"),
    "LEASEWAY_LEASE": "12",
    "LEASEWAY_HEARTBEAT": "3",
    "LEASEWAY_STORE_TIMEOUT": "4",
    "LEASEWAY_IDLE_IN_TRANSACTION": "6",
    "LEASEWAY_RETRY_BACKOFF": "[1, 2]",
}
FOREIGN = ("LEASEWAY_URL", "LEASEWAY_TOKEN", "DATABASE_URL", "LOCALSTACK_ENDPOINT")

Run = Callable[..., str]
Ticks = Callable[[], AbstractContextManager[None]]


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """What the commands are told: nothing of the caller's own Leaseway."""
    return {name: value for name, value in os.environ.items() if name not in FOREIGN} | SETTINGS


@pytest.fixture(scope="session")
def stack(environment: dict[str, str]) -> Iterator[Stack]:
    """The stack in .leaseway/test: a demo that runs isn't touched."""
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        made = Stack(Path(SETTINGS["LEASEWAY_STACK"]))
    yield made
    made.down()


@pytest.fixture(scope="session")
def run(stack: Stack, environment: dict[str, str]) -> Run:
    """Run a command of `leaseway` in a process of its own, without a terminal; what it printed."""

    def command(*arguments: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-m", "chalicelib.cli", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
        return ran.stdout

    return command


@pytest.fixture(scope="session")
def http(stack: Stack) -> Iterator[httpx.Client]:
    """A reader without a token, at the front port."""
    with httpx.Client(base_url=stack.url, timeout=30, follow_redirects=True) as client:
        yield client


@pytest.fixture(scope="session")
def first(run: Run) -> tuple[str, int]:
    """The first command of the README: what it printed and the version it published."""
    return published(run("demo"))


@pytest.fixture(scope="session")
def second(first: tuple[str, int], run: Run) -> tuple[str, int]:
    """The first command once more."""
    return published(run("demo"))


def published(output: str) -> tuple[str, int]:
    line = next(line for line in output.splitlines() if line.startswith("Version "))
    return output, int(line.split()[1])


@pytest.fixture
def ticks(stack: Stack) -> Ticks:
    """Recovery every two seconds: a minute of EventBridge is long for a test. The function is the deployed one."""

    @contextmanager
    def often() -> Iterator[None]:
        done = Event()

        def tick() -> None:
            while not done.wait(2):
                run_function(stack, "Recovery")

        thread = Thread(target=tick)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    return often
