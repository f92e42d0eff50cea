"""A real LocalStack with the plugins, one for the whole session, and what tests need to talk to it."""

import contextlib
import filecmp
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

ROOT = Path(__file__).parents[2]
LOCALSTACK = ROOT / ".leaseway/localstack-env"
FUNCTIONS = ROOT / ".leaseway/functions-env"


class LocalStack:
    """One LocalStack process in a folder of its own; `environment` adds to, or with None takes from, its settings."""

    def __init__(self, folder: Path, cache: Path, **environment: str | None) -> None:
        self.folder = folder
        self.log = folder / "localstack.log"
        self.status_folder = folder / "processes"
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        settings = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "TMPDIR": str(folder / "tmp"),
            "OVERRIDE_IN_DOCKER": "0",
            "FILESYSTEM_ROOT": str(cache),  # a start that has to fill it takes 2 s longer
            "GATEWAY_LISTEN": f"127.0.0.1:{self.port}",
            "LOCALSTACK_HOST": f"127.0.0.1:{self.port}",
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DISABLE_EVENTS": "1",
            "DNS_ADDRESS": "0",
            "SQS_ENDPOINT_STRATEGY": "path",
            "LAMBDA_RUNTIME_EXECUTOR": "process",
            "LAMBDA_PROCESS_PYTHON": f'{{"python3.13": "{FUNCTIONS}/bin/python"}}',
            "LAMBDA_PROCESS_STATUS_DIR": str(self.status_folder),
            "LAMBDA_SYNCHRONOUS_CREATE": "1",
            "LAMBDA_EVENT_SOURCE_MAPPING_POLL_INTERVAL_SEC": "0.02",
            "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_EMPTY_POLL_SEC": "0.2",
            "LAMBDA_RETRY_BASE_DELAY": "0",
            "PROVIDER_OVERRIDE_S3": "durable",
            "S3_DURABLE_DIR": str(folder / "s3"),
            **environment,
        }
        self.environment = {name: value for name, value in settings.items() if value is not None}
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        """Start and wait until it answers."""
        self.begin(*command)
        assert self.process
        end = time.monotonic() + 60
        while not self.healthy():
            assert self.process.poll() is None, self.log.read_text()[-3000:]
            assert time.monotonic() < end, self.log.read_text()[-3000:]
            time.sleep(0.05)

    def begin(self, *command: str) -> None:
        """Start without waiting."""
        (self.folder / "tmp").mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [LOCALSTACK / "bin/python", *(command or ("-m", "localstack.runtime.main"))],
                cwd=self.folder,  # any folder but the checkout's, where `localstack` is a folder of ours
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def refused(self) -> str:
        """Start one that is to refuse; returns what it said."""
        self.begin()
        assert self.process
        assert self.process.wait(30) == 1
        return self.log.read_text()

    def healthy(self) -> bool:
        with (
            contextlib.suppress(OSError),
            urllib.request.urlopen(f"{self.url}/_localstack/health", timeout=1) as answer,
        ):
            return answer.status == 200
        return False

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """End it in an orderly way; it may hang on a thread of its own, so not only so."""
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(15)
            except subprocess.TimeoutExpired:
                self.kill()

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="test",
            aws_secret_access_key="test",
            config=Config(retries={"total_max_attempts": 1}, max_pool_connections=20),
        )


def until[T](condition: Callable[[], T], seconds: float = 20) -> T:
    """Wait for something that another process does; returns its first true value."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "it didn't happen in time"
        time.sleep(0.02)
    return value


@pytest.fixture(scope="session")
def plugins() -> None:
    """The environments hold the plugins as they stand in this checkout (a running demo's aren't touched from here)."""
    remedy = "run `sh localstack/bootstrap.sh`"
    for environment in (LOCALSTACK, FUNCTIONS):
        assert (environment / "bin/python").exists(), f"{environment} is missing: {remedy}"
    (site,) = LOCALSTACK.glob("lib/python*/site-packages")
    for source in (ROOT / "localstack/plugins").glob("*/leaseway_*/*.py"):
        installed = site / source.parent.name / source.name
        assert installed.exists(), f"{source.name} isn't installed: {remedy}"
        assert filecmp.cmp(source, installed, shallow=False), f"another {source.name} is installed: {remedy}"


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("localstack-cache")


@pytest.fixture
def make_localstack(plugins: None, cache: Path) -> Iterator[Callable[..., LocalStack]]:
    """Make further LocalStacks (not yet started); they are ended, and their folders removed, with the test."""
    made: list[LocalStack] = []

    def make(**environment: str | None) -> LocalStack:
        made.append(LocalStack(Path(tempfile.mkdtemp(prefix="leaseway-localstack-")), cache, **environment))
        return made[-1]

    yield make
    for stack in made:
        if stack.process and stack.process.poll() is None:
            stack.kill()
        shutil.rmtree(stack.folder, ignore_errors=True)


@pytest.fixture(scope="session")
def localstack(plugins: None, cache: Path) -> Iterator[LocalStack]:
    folder = Path(tempfile.mkdtemp(prefix="leaseway-localstack-"))
    stack = LocalStack(folder, cache)
    try:
        stack.start()
        yield stack
    finally:
        stack.stop()
        shutil.rmtree(folder, ignore_errors=True)
