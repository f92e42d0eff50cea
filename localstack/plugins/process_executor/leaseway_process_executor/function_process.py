"""One operating-system process that runs a function's code. Knows nothing of LocalStack."""

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path

from leaseway_process_executor.runtime_api import Invocation, Outcome, RuntimeApi

LAUNCHER = Path(__file__).with_name("launcher.py")


class FunctionProcess:
    """A running function process with its Runtime API.

    Its group (it and what it started) ends with it, with `kill`, and with the process that made this object.
    """

    def __init__(self, python: str, handler: str, *, folder: Path, env: Mapping[str, str], log: Path) -> None:
        self._api = RuntimeApi()
        self._lock = threading.Lock()
        self._gone = threading.Event()
        follower, self._lifeline = os.pipe()
        try:
            with log.open("ab") as output:  # appending, so that the log may be cut while the process writes to it
                self._process = subprocess.Popen(
                    [python, str(LAUNCHER), str(follower), handler],
                    cwd=folder,
                    env={**env, "AWS_LAMBDA_RUNTIME_API": self._api.address},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    pass_fds=[follower],
                    start_new_session=True,
                )
        except BaseException:
            os.close(self._lifeline)
            self._api.end("Runtime can't be started")
            raise
        finally:
            os.close(follower)
        self.pid = self._process.pid
        threading.Thread(target=self._watch, name=f"function-process-{self.pid}", daemon=True).start()

    @property
    def alive(self) -> bool:
        """False once the process has ended and everyone who waited for it has been told."""
        return not self._gone.is_set()

    def wait_until_ready(self, timeout: float | None = None) -> None:
        """Return once the code is loaded; raises InitFailed or TimeoutError."""
        self._api.wait_until_ready(timeout)

    def submit(self, invocation: Invocation) -> Future[Outcome]:
        """Hand an invocation to the process; its end is an outcome too."""
        return self._api.submit(invocation)

    def kill(self) -> None:
        """End the process and everything it started; returns when it is gone."""
        with self._lock:
            if self._process.returncode is None:
                self._kill_group()
        self._gone.wait(10)

    def _kill_group(self) -> None:
        with contextlib.suppress(OSError):
            os.killpg(self.pid, signal.SIGKILL)

    def _watch(self) -> None:
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._lock:  # it isn't reaped yet, so its number can't belong to a stranger
            self._kill_group()
            code = self._process.wait()
        os.close(self._lifeline)
        self._gone.set()
        how = f"exit status {code}" if code >= 0 else f"signal: {signal.strsignal(-code) or -code}".lower()
        self._api.end(f"Runtime exited with error: {how}")
