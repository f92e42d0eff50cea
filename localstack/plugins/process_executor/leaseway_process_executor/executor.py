"""LocalStack's Lambda executor: each execution environment is a process of this machine.

Settings are environment variables of LocalStack:

LAMBDA_PROCESS_PYTHON       JSON, runtime to interpreter: {"python3.13": "/…/bin/python"}; the interpreters have
                            awslambdaric and boto3, as Lambda's own runtimes do
LAMBDA_PROCESS_STATUS_DIR   folder for one status file and one live log per environment (default: lambda-processes in
                            the temporary directory); one folder per LocalStack
LAMBDA_PROCESS_INHERIT_ENV  names of variables, separated by commas, that functions get from LocalStack's environment
"""

import json
import logging
import os
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from localstack import config
from localstack.services.lambda_.invocation.executor_endpoint import ShutdownDuringStartup, StatusErrorException
from localstack.services.lambda_.invocation.lambda_models import ArchiveCode, FunctionVersion, InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import RuntimeExecutor

from leaseway_process_executor.function_process import FunctionProcess
from leaseway_process_executor.runtime_api import InitFailed, Invocation, Outcome, error

LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """What the environment of LocalStack says."""

    pythons: dict[str, str] = field(default_factory=lambda: json.loads(os.environ.get("LAMBDA_PROCESS_PYTHON") or "{}"))
    status_folder: Path = field(
        default_factory=lambda: Path(
            os.environ.get("LAMBDA_PROCESS_STATUS_DIR") or Path(tempfile.gettempdir(), "lambda-processes")
        )
    )
    inherited: tuple[str, ...] = field(
        default_factory=lambda: (
            "PATH",
            "HOME",
            "TMPDIR",
            *filter(None, os.environ.get("LAMBDA_PROCESS_INHERIT_ENV", "").split(",")),
        )
    )


SETTINGS = Settings()


class ProcessExecutor(RuntimeExecutor):
    """One execution environment: at most one process at a time, a new one after a crash or a time-out."""

    def __init__(self, id: str, function_version: FunctionVersion) -> None:
        super().__init__(id=id, function_version=function_version)
        self._env: dict[str, str] = {}
        self._process: FunctionProcess | None = None
        self._stopped = False
        self._source_stamp = 0.0
        self._init_seconds: float | None = None
        self._log = SETTINGS.status_folder / f"{id}.log"
        self._status = SETTINGS.status_folder / f"{id}.json"

    # ---- life cycle

    def start(self, env_vars: dict[str, str]) -> None:
        """Start the process and wait until its code is loaded (LocalStack's own timer stops it otherwise).

        Raises:
            StatusErrorException: the code can't be loaded; its payload is the function's error.
        """
        folder = self._code.get_unzipped_code_location()
        self._env = {
            "LANG": "en_US.UTF-8",
            "PYTHONUNBUFFERED": "1",
            **{name: os.environ[name] for name in SETTINGS.inherited if name in os.environ},
            **{name: str(value) for name, value in env_vars.items()},
            "PYTHONPATH": os.pathsep.join([str(folder), *self._layer_paths()]),
            "LAMBDA_TASK_ROOT": str(folder),
            "AWS_EXECUTION_ENV": f"AWS_Lambda_{self.function_version.config.runtime}",
        }
        self._start_process(timeout=None)

    def stop(self) -> None:
        """End the process, in the middle of an invocation too."""
        self._stopped = True
        if self._process:
            self._process.kill()
        self._log.unlink(missing_ok=True)
        self._status.unlink(missing_ok=True)

    def _start_process(self, timeout: float | None) -> FunctionProcess:
        began = time.perf_counter()
        if self._code.is_hot_reloading():
            self._source_stamp = self._newest_source()
        _, runtime, handler = _zip(self.function_version)
        process = self._process = FunctionProcess(
            _python(runtime),
            handler,
            folder=self._code.get_unzipped_code_location(),
            env=self._env,
            log=self._log,
        )
        if self._stopped:  # stopped while the process was made
            process.kill()
        try:
            process.wait_until_ready(timeout)
        except (InitFailed, TimeoutError) as e:
            process.kill()
            if self._stopped:
                raise ShutdownDuringStartup("stopped while it started") from e
            body = e.body if isinstance(e, InitFailed) else error("Sandbox.Timedout", "The code didn't load in time.")
            LOG.warning("%s can't start: %s\n%s", self._name, body.decode(errors="replace"), self._take_output())
            raise StatusErrorException("Environment startup failed", payload=body) from e
        self._init_seconds = time.perf_counter() - began
        self._write_status(request_id=None)
        return process

    # ---- invocations

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        """Run one invocation; the function's error, its process's end and a time-out are results, not exceptions."""
        request_id = payload["invoke-id"]
        function = self.function_version.config
        process = self._usable_process(function.timeout)
        before = self._take_output()
        began = time.perf_counter()
        self._write_status(request_id)
        outcome = process.submit(
            Invocation(
                request_id=request_id,
                payload=payload["payload"].encode(),
                function_arn=payload["invoked-function-arn"],
                trace_id=payload["trace-id"],
                deadline_ms=int((time.time() + function.timeout) * 1000),
            )
        )
        try:
            result = outcome.result(timeout=function.timeout)
        except TimeoutError:
            process.kill()
            message = f"{_now()} {request_id} Task timed out after {function.timeout:.2f} seconds"
            result = Outcome(error("Sandbox.Timedout", message), is_error=True)
        milliseconds = (time.perf_counter() - began) * 1000
        self._write_status(request_id=None)
        init = f"\tInit Duration: {self._init_seconds * 1000:.2f} ms" if self._init_seconds else ""
        self._init_seconds = None
        logs = (
            f"{before}START RequestId: {request_id} Version: {self.function_version.id.qualifier}\n"
            f"{self._take_output()}END RequestId: {request_id}\n"
            f"REPORT RequestId: {request_id}\tDuration: {milliseconds:.2f} ms\t"
            f"Memory Size: {function.memory_size} MB{init}\n"
        )
        return InvocationResult(request_id, result.body, is_error=result.is_error, logs=logs)

    def _usable_process(self, timeout: float) -> FunctionProcess:
        process = self._process
        if process and process.alive and self._code.is_hot_reloading() and self._newest_source() > self._source_stamp:
            process.kill()
        # As on Lambda, a restart after a crash counts against the function's time-out: nobody else limits it.
        return process if process and process.alive else self._start_process(timeout)

    def _write_status(self, request_id: str | None) -> None:
        """Tell an operator which process runs which request; replaced in one go, so it is never half written."""
        if self._stopped or not self._process:
            return
        status = {
            "pid": self._process.pid,
            "function": self.function_version.id.function_name,
            "request_id": request_id,
            "since": _now(),
            "log": str(self._log),
        }
        draft = self._status.with_suffix(".draft")
        draft.write_text(json.dumps(status))
        draft.replace(self._status)

    def _take_output(self) -> str:
        """Return what the process wrote since the last time and cut its log, which would grow for ever."""
        if not self._log.exists():
            return ""
        with self._log.open("r+b") as log:
            output = log.read().decode(errors="replace")
            log.truncate(0)
        return output if not output or output.endswith("\n") else f"{output}\n"

    def get_logs(self) -> str:
        """Return what the process wrote since the last invocation."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    # ---- code

    @property
    def _code(self) -> ArchiveCode:
        return _zip(self.function_version)[0]

    @property
    def _name(self) -> str:
        return str(self.function_version.id.function_name)

    def _layer_paths(self) -> list[str]:
        _, runtime, _ = _zip(self.function_version)
        roots = [code.get_unzipped_code_location() for code in _layers(self.function_version)]
        return [
            str(path)
            for root in reversed(roots)  # a later layer wins
            for path in (root / "python", root / "python" / "lib" / runtime / "site-packages")
        ]

    def _newest_source(self) -> float:
        return max((f.stat().st_mtime for f in self._code.get_unzipped_code_location().rglob("*.py")), default=0.0)

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        """Unpack the code; what raises here is the reason of the function's state `Failed`."""
        code, runtime, _ = _zip(function_version)
        _python(runtime)
        for archive in [code, *_layers(function_version)]:
            archive.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        """Nothing to do: LocalStack removes the unpacked code."""

    # ---- addresses: everything is on this machine

    def get_address(self) -> str:
        """Return where the process is."""
        return "127.0.0.1"

    def get_endpoint_from_executor(self) -> str:
        """Return where LocalStack is for the process."""
        return "127.0.0.1"

    def get_runtime_endpoint(self) -> str:
        """Return an address that only container images use."""
        return f"http://127.0.0.1:{config.GATEWAY_LISTEN[0].port}/_localstack_lambda/{self.id}"


def _zip(function_version: FunctionVersion) -> tuple[ArchiveCode, str, str]:
    """Return a zip package's code, runtime and handler; an image has none of them."""
    function = function_version.config
    if not function.code or not function.handler or not (function.runtime or "").startswith("python"):
        raise NotImplementedError("The process executor runs zip packages for Python only.")
    return function.code, str(function.runtime), function.handler


def _layers(function_version: FunctionVersion) -> list[ArchiveCode]:
    return [layer.code for layer in function_version.config.layers or [] if layer.code]


def _python(runtime: str) -> str:
    if not (python := SETTINGS.pythons.get(runtime) or SETTINGS.pythons.get("default")):
        raise LookupError(f"LAMBDA_PROCESS_PYTHON names no interpreter for {runtime}.")
    return python


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
