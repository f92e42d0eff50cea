"""Processes that outlive the command that starts them, and are found again by the next one.

The process table is the truth: each process carries the name of its stack and service in its environment, so there is
no pid file that a kill, a reboot or a reused pid could turn into a lie.
"""

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from localstack.postgresql import becomes_free

MARK = "LEASEWAY_SERVICE"
FINGERPRINT = "LEASEWAY_SERVICE_FINGERPRINT"
START_SECONDS = 60
STOP_SECONDS = 8  # whatever is killed keeps everything it acknowledged, so patience is mere politeness
LOG_BYTES = 20_000_000


class ServiceError(Exception):
    """A service can't be started; the message says why and what to do."""


@dataclass(frozen=True)
class Service:
    """One server process of a stack."""

    name: str
    folder: Path  # the stack's
    port: int
    command: Sequence[str | Path]
    environment: Mapping[str, str]
    ready: Callable[[], bool]
    built: str = ""
    """What else a running process must have been started with: a hash of its code."""
    before: Callable[[], None] = field(default=lambda: None)

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.folder / f"{self.name}.log"

    @property
    def fingerprint(self) -> str:
        """Changes with everything the process depends on."""
        said = [*map(str, self.command), *(f"{k}={v}" for k, v in sorted(self.environment.items())), self.built]
        return hashlib.sha256("\0".join(said).encode()).hexdigest()

    def start(self) -> bool:
        """Start it unless it runs as it should; return whether it had to be started."""
        running = list(self.processes())
        if running and all(process.environ().get(FINGERPRINT) == self.fingerprint for process in running):
            with suppress(TimeoutError):
                self._wait_until_ready(running[0])
                return False
        self.stop()
        if not Path(self.command[0]).exists():
            raise ServiceError(f"{self.command[0]} isn't there: `make env` makes it.")
        if not becomes_free(self.port):
            raise ServiceError(f"Port {self.port} of {self.name} is taken by another program: stop that one.")
        self.before()
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        with self.log.open("ab") as log:
            child = subprocess.Popen(
                self.command,
                # Never the checkout: its folder `localstack` would shadow LocalStack's own package.
                cwd=self.folder,
                env={**self.environment, MARK: mark(self.folder, self.name), FINGERPRINT: self.fingerprint},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait_until_ready(child)
        except TimeoutError as error:
            self.stop()
            words = self.log.read_text(errors="replace")[-2000:]
            raise ServiceError(f"{self.name} doesn't start on port {self.port}; its last words:\n{words}") from error
        return True

    def stop(self) -> None:
        """End it, and make sure that it has ended."""
        end(list(self.processes()))

    def running(self) -> bool:
        """Whether it has a process."""
        return any(self.processes())

    def processes(self) -> Iterator[psutil.Process]:
        """Its processes: one, or what a kill left over."""
        return marked(self.folder, self.name)

    def _wait_until_ready(self, process: "subprocess.Popen[bytes] | psutil.Process") -> None:
        until = time.monotonic() + START_SECONDS
        while not self.ready():
            gone = not process.is_running() if isinstance(process, psutil.Process) else process.poll() is not None
            if gone or time.monotonic() > until:
                raise TimeoutError
            time.sleep(0.03)


def mark(folder: Path, name: str) -> str:
    """How a process says which stack's and which service it is."""
    return f"{folder}:{name}"


def marked(folder: Path, name: str) -> Iterator[psutil.Process]:
    """The live processes of a service of this stack."""
    wanted = mark(folder, name)
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == wanted and process.pid != os.getpid():
                yield process


def end(processes: Sequence[psutil.Process]) -> None:
    """SIGTERM, some patience, SIGKILL (LocalStack hangs in its own threads once in a while)."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, alive = psutil.wait_procs(processes, timeout=STOP_SECONDS)
    for process in alive:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(alive, timeout=STOP_SECONDS)
