"""The stack on this machine: PostgreSQL, LocalStack, Oxigraph and the front port, everything in one folder.

Ports and secrets are chosen once and kept. The services outlive the command that starts them; each command finds them
running, or starts what is missing. Nothing listens anywhere but on loopback.
"""

import fcntl
import hashlib
import json
import os
import secrets
import shutil
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from localstack.postgresql import PostgreSQL, free_ports
from localstack.services import MARK, Service, ServiceError, end, mark, marked

CHECKOUT = Path(__file__).resolve().parents[1]
STATE = CHECKOUT / ".leaseway"
REGION = "us-east-1"
SILENCE = 7.0
"""Seconds after which a command says that it is still at it."""

BUCKET = "leaseway-files"
FUNCTION = "function"
PORTS = ("postgresql", "localstack", "oxigraph", "front")
NOT_SETTINGS = {"LEASEWAY_URL", "LEASEWAY_TOKEN", "LEASEWAY_STACK"}
"""Variables of the command line that are no settings of the app."""

CATALOG = {
    "LEASEWAY_CATALOG_TITLE": '{"en": "Leaseway on this machine", "de": "Leaseway auf diesem Rechner"}',
    "LEASEWAY_CATALOG_DESCRIPTION": '{"en": "What the local stack publishes.", "de": "Was hier veröffentlicht wird."}',
    "LEASEWAY_CATALOG_PUBLISHER_NAME": '{"en": "The office of this machine", "de": "Das Amt dieses Rechners"}',
    "LEASEWAY_CATALOG_PUBLISHER_IRI": "https://example.org/office",
    "LEASEWAY_CATALOG_LICENCE": "http://publications.europa.eu/resource/authority/licence/CC_BY_4_0",
    "LEASEWAY_CATALOG_HOMEPAGE": "https://example.org/catalogue",
}
"""The catalogue of an installation that hasn't got a name of its own yet; settings of the same name win."""


class Stack:
    """The services of one folder. ``LOCALSTACK_ENDPOINT`` or ``DATABASE_URL`` in the environment name running ones."""

    api = "leaseway"
    """The REST API's id at LocalStack, the same after every deployment."""

    def __init__(self, folder: Path, durable: bool = True) -> None:
        """Where the stack lives, and whether its data must survive a power cut (tests can do without)."""
        self.folder = folder.resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.durable = durable
        self.say: Callable[[str], None] = lambda text: None  # what takes its time; commands tell it
        self._given = dict(os.environ)  # as the command was called: what commands set later is ours
        self._depth = 0

    # ---- what it is made of

    @cached_property
    def ports(self) -> dict[str, int]:
        """A loopback port for each service, chosen once."""
        return self._kept("ports", lambda: dict(zip(PORTS, free_ports(len(PORTS)), strict=True)))

    @cached_property
    def _secrets(self) -> dict[str, str]:
        """Made once, readable by the owner alone."""
        return self._kept(
            "secrets",
            lambda: {
                "hash_key": secrets.token_urlsafe(32),
                "files_access_key_id": "LW" + secrets.token_hex(8).upper(),
                "files_secret_access_key": secrets.token_urlsafe(32),
                "app_password": secrets.token_urlsafe(24),
            },
        )

    @cached_property
    def postgresql(self) -> PostgreSQL | None:
        """PostgreSQL, unless ``DATABASE_URL`` names another one."""
        own = PostgreSQL(self.folder / "postgresql", self.ports["postgresql"], self.durable)
        return own if self._given.get("DATABASE_URL") in (None, "", own.dsn) else None

    @property
    def endpoint(self) -> str:
        """LocalStack's address."""
        return self._given.get("LOCALSTACK_ENDPOINT") or f"http://127.0.0.1:{self.ports['localstack']}"

    @property
    def url(self) -> str:
        """The front port's address."""
        return f"http://127.0.0.1:{self.ports['front']}"

    @property
    def public_url(self) -> str:
        """The base of every address given out: the front port's, or a proxy's that was named at the first start."""
        return str(self._read("environment").get("PUBLIC_URL") or self._given.get("PUBLIC_URL") or self.url).rstrip("/")

    @cached_property
    def services(self) -> list[Service]:
        """The servers beside PostgreSQL."""
        own = f"http://127.0.0.1:{self.ports['localstack']}"
        return [*([self._localstack()] if self.endpoint == own else []), self._oxigraph(), self._front()]

    # ---- what one does with it

    def up(self) -> None:
        """Start what doesn't run, migrate the database, deploy the app unless this very package is deployed."""
        from localstack.deploy import deploy

        with self.alone():
            self.start()
            self.say("packaging the app, and deploying it where it differs")
            deploy(self)

    def start(self) -> None:
        """Start the services that don't run, and bring the database to the app's schema."""
        with self.alone():
            self.keep("PUBLIC_URL", self.public_url)
            running = self.status()
            if self.postgresql:
                self._say_start("postgresql", running)
                with self.at("starting postgresql"):
                    self.postgresql.start()
            for service in self.services:
                self._say_start(service.name, running)
                with self.at(f"starting {service.name}"):
                    service.start()
            self._migrate()

    def down(self) -> None:
        """Stop everything; what it keeps is there again after the next start."""
        with self.alone():
            for service in reversed(self.services):
                with self.at(f"stopping {service.name}"):
                    service.stop()
            with self.at("stopping functions"):
                end(list(marked(self.folder, FUNCTION)))
            if self.postgresql:
                with self.at("stopping postgresql"):
                    self.postgresql.stop()

    def status(self) -> dict[str, bool]:
        """Which services run."""
        own = {"postgresql": self.postgresql.pid() is not None} if self.postgresql else {}
        return own | {service.name: service.running() for service in self.services}

    def keep(self, name: str, value: str) -> None:
        """Keep a variable of the app, such as a connection's secret; the next deployment hands it over."""
        with self.alone():
            self._write("environment", self._read("environment") | {name: value})

    def forget(self, name: str) -> None:
        """Keep a variable of the app no longer; functions that are deployed have it until the next deployment."""
        with self.alone():
            self._write("environment", {k: v for k, v in self._read("environment").items() if k != name})

    def environment(self) -> dict[str, str]:
        """What commands and tests on this machine are told: the administrator's database, addresses, keys, settings."""
        return self._settings() | {
            "DATABASE_URL": self._dsn,
            "LOCALSTACK_ENDPOINT": self.endpoint,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": REGION,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }

    def client(self, service: str) -> Any:
        """A boto3 client for this stack's LocalStack."""
        import boto3  # 0.2 s, which status and down don't need
        from botocore.config import Config

        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106 - what LocalStack takes
            config=Config(s3={"addressing_style": "path"}),
        )

    def functions_environment(self, secrets_of_connections: bool) -> dict[str, str]:
        """What the deployed functions are told: the app's own login; the secrets of connections to some."""
        found = self._settings() | {"DATABASE_URL": self._app_dsn, MARK: mark(self.folder, FUNCTION)}
        return {k: v for k, v in found.items() if secrets_of_connections or not k.startswith("LEASEWAY_SECRET_")}

    # ---- the rest

    def _say_start(self, name: str, running: Mapping[str, bool]) -> None:
        if not running[name]:
            self.say(f"starting {name}")

    @property
    def _dsn(self) -> str:
        return self.postgresql.dsn if self.postgresql else self._given["DATABASE_URL"]

    @property
    def _app_dsn(self) -> str:
        if not self.postgresql:
            return self._dsn
        return (
            f"postgresql://leaseway_app:{self._secrets['app_password']}@127.0.0.1:{self.ports['postgresql']}/postgres"
        )

    def _settings(self) -> dict[str, str]:
        oxigraph = f"http://127.0.0.1:{self.ports['oxigraph']}"
        given = {k: v for k, v in self._given.items() if k.startswith("LEASEWAY_") and k not in NOT_SETTINGS}
        return {
            **CATALOG,
            "LEASEWAY_HEARTBEAT": "2",  # one job at a time here, and a progress bar that moves
            **self._read("environment"),
            **given,
            "PUBLIC_URL": self.public_url,
            "LEASEWAY_BUCKET": BUCKET,
            "LEASEWAY_TRIPLE_STORE_UPDATE_URL": f"{oxigraph}/update",
            "LEASEWAY_TRIPLE_STORE_QUERY_URL": f"{oxigraph}/query",
            "LEASEWAY_HASH_KEY": self._secrets["hash_key"],
            "LEASEWAY_FILES_ACCESS_KEY_ID": self._secrets["files_access_key_id"],
            "LEASEWAY_FILES_SECRET_ACCESS_KEY": self._secrets["files_secret_access_key"],
        }

    def _migrate(self) -> None:
        from chalicelib.db import migrate, set_time_outs
        from chalicelib.settings import load

        migrate(self._dsn, self.public_url, deployed=True)  # nothing runs while the app is deployed
        set_time_outs(self._dsn, load())
        if self.postgresql:
            with psycopg.connect(self._dsn, autocommit=True) as connection:
                connection.execute(
                    sql.SQL("alter role leaseway_app password {}").format(sql.Literal(self._secrets["app_password"]))
                )

    def _localstack(self) -> Service:
        port = self.ports["localstack"]
        temporary = self.folder / "tmp"
        processes = self.folder / "functions"

        def before() -> None:
            # Functions of a LocalStack that was killed may still be busy; their leases are theirs no longer.
            end(list(marked(self.folder, FUNCTION)))
            for left_behind in (temporary, processes):
                shutil.rmtree(left_behind, ignore_errors=True)
                left_behind.mkdir()

        return Service(
            name="localstack",
            folder=self.folder,
            port=port,
            command=[STATE / "localstack-env" / "bin" / "python", "-m", "localstack.runtime.main"],
            environment={
                **_inherited(self._given),
                "HOME": str(self.folder),
                "TMPDIR": str(temporary),
                # Host mode, even in a container; nothing listens beyond loopback, nothing leaves the machine.
                "OVERRIDE_IN_DOCKER": "0",
                "FILESYSTEM_ROOT": str(self.folder / "aws"),
                "GATEWAY_LISTEN": f"127.0.0.1:{port}",
                "LOCALSTACK_HOST": f"127.0.0.1:{port}",
                "SKIP_SSL_CERT_DOWNLOAD": "1",
                "DISABLE_EVENTS": "1",
                "DNS_ADDRESS": "0",
                "SQS_ENDPOINT_STRATEGY": "path",
                # Functions are processes of this machine.
                "LAMBDA_RUNTIME_EXECUTOR": "process",
                "LAMBDA_PROCESS_PYTHON": json.dumps({"python3.13": str(STATE / "functions-env" / "bin" / "python")}),
                "LAMBDA_PROCESS_STATUS_DIR": str(processes),
                "LAMBDA_PROCESS_ESM_CONCURRENCY": "5",
                "LAMBDA_SYNCHRONOUS_CREATE": "1",
                "LAMBDA_RETRY_BASE_DELAY": "1",
                "LAMBDA_EVENT_SOURCE_MAPPING_POLL_INTERVAL_SEC": "0.05",
                "LAMBDA_EVENT_SOURCE_MAPPING_MAX_BACKOFF_ON_EMPTY_POLL_SEC": "0.3",
                "SQS_CLOUDWATCH_METRICS_REPORT_INTERVAL": "5",
                # Buckets and objects survive a restart.
                "PROVIDER_OVERRIDE_S3": "durable",
                "S3_DURABLE_DIR": str(self.folder / "objects"),
                "S3_DURABLE_FSYNC": "1" if self.durable else "0",
            },
            ready=partial(_answers, f"http://127.0.0.1:{port}/_localstack/health"),
            built=_stamp(STATE / "localstack-env") + _stamp(STATE / "functions-env"),
            before=before,
        )

    def _oxigraph(self) -> Service:
        address = f"127.0.0.1:{self.ports['oxigraph']}"
        binary = CHECKOUT / ".venv" / "bin" / "oxigraph"
        return Service(
            name="oxigraph",
            folder=self.folder,
            port=self.ports["oxigraph"],
            command=[binary, "serve", "--location", self.folder / "triples", "--bind", address],
            environment=_inherited(self._given),
            ready=partial(_answers, f"http://{address}/"),
        )

    def _front(self) -> Service:
        front = CHECKOUT / "localstack" / "front.py"
        return Service(
            name="front",
            folder=self.folder,
            port=self.ports["front"],
            command=[CHECKOUT / ".venv" / "bin" / "python", "-m", "localstack.front"],
            environment={
                **_inherited(self._given),
                "PYTHONPATH": str(CHECKOUT),
                "FRONT_PORT": str(self.ports["front"]),
                "FRONT_URL": self.public_url,
                "FRONT_UPSTREAM": self.endpoint,
                "FRONT_API": self.api,
                "FRONT_BUCKET": BUCKET,
                "FRONT_REGION": REGION,
                "FRONT_ACCESS_KEY_ID": self._secrets["files_access_key_id"],
                "FRONT_SECRET_ACCESS_KEY": self._secrets["files_secret_access_key"],
            },
            ready=partial(_answers, f"{self.url}/"),
            built=hashlib.sha256(front.read_bytes()).hexdigest(),
        )

    @contextmanager
    def at(self, work: str) -> Iterator[None]:
        """While this is worked on, say so every few seconds."""
        began, done = time.monotonic(), threading.Event()

        def tell() -> None:
            while not done.wait(SILENCE):
                self.say(f"still {work}, for {time.monotonic() - began:.0f} s")

        telling = threading.Thread(target=tell, name="still at it", daemon=True)
        telling.start()
        try:
            yield
        finally:
            done.set()
            telling.join()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """One command at a time works on a stack; a second one waits."""
        if self._depth:
            yield
            return
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say("another command works on the local stack; this one waits for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            self._depth += 1
            try:
                yield
            finally:
                self._depth -= 1

    def _kept[T](self, name: str, make: Callable[[], dict[str, T]]) -> dict[str, T]:
        """A file's content, made at first and whenever something new is asked for, never changed otherwise."""
        with self.alone():
            found = self._read(name)
            if missing := {key: value for key, value in make().items() if key not in found}:
                found |= missing
                self._write(name, found)
        return found

    def _read(self, name: str) -> dict[str, Any]:
        file = self.folder / f"{name}.json"
        try:
            found = json.loads(file.read_text()) if file.exists() else {}
            return dict(found)
        except (ValueError, TypeError) as error:
            raise ServiceError(
                f"{file} is damaged: bring it back from a backup, or remove the whole folder."
            ) from error

    def _write(self, name: str, content: Mapping[str, object]) -> None:
        new = self.folder / f"{name}.json.new"
        new.unlink(missing_ok=True)
        new.touch(mode=0o600)
        new.write_text(json.dumps(content, indent=2) + "\n")
        new.replace(self.folder / f"{name}.json")


def _inherited(given: dict[str, str]) -> dict[str, str]:
    """What a service gets from the caller's environment: no AWS profile, no proxy, no setting of another program."""
    return {name: given[name] for name in ("PATH", "LANG") if name in given}


def _stamp(environment: Path) -> str:
    """What a virtual environment was made from; a process started with another one is started again."""
    stamp = environment / "stamp"
    return stamp.read_text().strip() if stamp.exists() else ""


def _answers(address: str) -> bool:
    """Whether a server answers there, whatever it says."""
    try:
        with urllib.request.urlopen(address, timeout=2):  # noqa: S310 - ours
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False
