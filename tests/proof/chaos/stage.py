"""The stack that is disturbed: real function processes, proxies before all they speak to, an office."""

import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from localstack.deploy import CODE_BUCKET, deploy, function_name, packaged
from localstack.services import Service, ServiceError
from localstack.stack import STATE, Stack
from tests.data_service.server import TOKEN, DataService, serving

from .broken import Broken, broken_function, broken_package
from .proxy import Proxy, of_aws, of_exports, of_triples, proxied

LEASE = 10
IDLE = 6
"""Seconds for which a transaction may be idle; then the server ends it."""

INVOCATION = 36
"""Seconds of the worker's own time-out. A load's writing transaction takes a lease for all that is left of them; with
less than 30 none is begun."""

AT_ONCE = 5
"""Workers at a time: some of them are asleep."""

SETTINGS = {
    "LEASEWAY_LEASE": str(LEASE),
    "LEASEWAY_HEARTBEAT": "2",
    "LEASEWAY_STORE_TIMEOUT": "3",
    "LEASEWAY_DATA_SERVICE_TIMEOUT": "3",
    "LEASEWAY_IDLE_IN_TRANSACTION": str(IDLE),
    "LEASEWAY_STATEMENT_TIMEOUT": "5",
    "LEASEWAY_LOCK_TIMEOUT": "5",
    "LEASEWAY_RETRY_BACKOFF": "[1, 2]",
    "LEASEWAY_OUTAGE_PAUSES": "[1, 4]",
    "LEASEWAY_WAKEUP_LOST": "12",
}
FOREIGN = ("LEASEWAY_URL", "LEASEWAY_TOKEN", "LEASEWAY_STACK", "DATABASE_URL", "LOCALSTACK_ENDPOINT", "PUBLIC_URL")
ROLES = ("Worker", "APIHandler", "Recovery", "Cleanup")

RECORDS = 200
OUTSIDE = f"""
create schema feed;
create table feed.readings (id int primary key, generation int not null);
insert into feed.readings select n, 1 from generate_series(1, {RECORDS}) as n;
create schema mart;
create table mart.readings (id int primary key, generation int not null);
create table mart.copies (id int primary key, generation int not null);
create role chaos_reader login password 'reader';
create role chaos_writer login password 'writer';
grant usage on schema feed to chaos_reader;
grant select on feed.readings to chaos_reader;
grant usage on schema mart to chaos_writer;
grant select, insert, update, delete on all tables in schema mart to chaos_writer;
create schema leaseway authorization chaos_writer;
"""
CONTRACT: dict[str, Any] = {
    "source": "readings",
    "columns": [{"name": "id", "type": "integer"}, {"name": "generation", "type": "integer"}],
    "key": ["id"],
}
CONTRACTS = {"readings": "mart.readings", "copies": "mart.copies"}

ABOUT: dict[str, Any] = {
    "title": {"en": "Chaos"},
    "description": {"en": "What is published while everything fails."},
    "keywords": {"en": ["chaos"]},
    "languages": ["en"],
    "publisher": {"name": {"en": "Office"}, "iri": "https://office.example.org/id"},
    "contact": {"name": {"en": "Desk"}, "email": "desk@example.org"},
    "themes": ["ENVI"],
    "licence": "CC0",
    "formats": ["csv", "json"],
}
NUMBERS = [{"name": "id", "type": "integer"}, {"name": "generation", "type": "integer"}]
DATASETS: dict[str, dict[str, Any]] = {
    "readings-a": {"source": "readings", "columns": NUMBERS},
    "readings-b": {"source": "readings", "columns": NUMBERS},
    "readings-c": {"source": "readings", "columns": NUMBERS},
    "readings-d": {"source": "readings", "columns": NUMBERS},
    "stock": {"source": "stock", "columns": NUMBERS, "key": ["id"]},
}
COUNTS: dict[str, Any] = {
    "columns": [{"name": "load", "type": "integer"}, {"name": "row", "type": "integer"}],
    "key": ["load", "row"],
}
PUBLISHED = tuple(DATASETS)


class DisturbedStack(Stack):
    """A stack whose functions reach AWS and the triple store by way of proxies."""

    proxies: dict[str, Proxy]

    @cache  # noqa: B019 - it lives as long as the run
    def client(self, service: str) -> Any:
        return super().client(service)  # boto3 takes longer to make one than to ask

    def _settings(self) -> dict[str, str]:
        triples = self.proxies["triples"].url
        return super()._settings() | {
            "LEASEWAY_TRIPLE_STORE_UPDATE_URL": f"{triples}/update",
            "LEASEWAY_TRIPLE_STORE_QUERY_URL": f"{triples}/query",
        }

    def _localstack(self) -> Service:
        service = super()._localstack()
        # A request to CloudWatch for each of SQS's own, which nobody looks at.
        return replace(service, environment={**service.environment, "SQS_DISABLE_CLOUDWATCH_METRICS": "1"})

    def functions_environment(self, secrets_of_connections: bool) -> dict[str, str]:
        return super().functions_environment(secrets_of_connections) | {"AWS_ENDPOINT_URL": self.proxies["aws"].url}


@dataclass
class Stage:
    """All there is, and the ways around the proxies, for whoever looks."""

    stack: DisturbedStack
    proxies: dict[str, Proxy]
    exports: DataService
    token: str
    functions: dict[str, str]
    """Name of a deployed function to its role: Worker, APIHandler, Recovery, Cleanup."""
    counts: tuple[str, ...]
    """Datasets in which each load has rows of its own."""
    elsewhere: bool = False
    """Whether another data service than the built-in one makes the exports."""
    http: httpx.Client = field(default_factory=partial(httpx.Client, timeout=20))
    """Everybody's: each would make a TLS context of its own, which takes longer than the request."""

    @property
    def loaded(self) -> tuple[str, ...]:
        return ("stock", *self.counts)

    @property
    def url(self) -> str:
        return self.stack.url

    @property
    def oxigraph(self) -> str:
        return f"http://127.0.0.1:{self.stack.ports['oxigraph']}"

    @property
    def dsn(self) -> str:
        return str(self.stack.environment()["DATABASE_URL"])

    @property
    def outside(self) -> str:
        return make_conninfo(self.dsn, dbname="outside")

    def function(self, role: str) -> str:
        return next(name for name, known in self.functions.items() if known == role)

    def running(self) -> list[dict[str, Any]]:
        """The function processes: pid, role, request_id (null: idle), log."""
        found = []
        for file in (self.stack.folder / "functions").glob("*.json"):
            with suppress(OSError, ValueError):  # it has just ended
                status = json.loads(file.read_text())
                role = self.functions.get(status["function"])
                if role:
                    found.append(status | {"role": role})
        return found

    def another_data_service(self) -> None:
        """A deployment in the middle of everything: from now on exports are made elsewhere."""
        client = self.stack.client("lambda")
        for role in ("Worker", "Cleanup"):
            known = client.get_function_configuration(FunctionName=self.function(role))
            variables = known["Environment"]["Variables"] | {
                "LEASEWAY_DATA_SERVICE_URL": f"{self.proxies['exports'].url}/v1",
                "LEASEWAY_DATA_SERVICE_TOKEN": TOKEN,
            }
            self._configure(role, Environment={"Variables": variables})
        self.elsewhere = True

    def _configure(self, role: str, **what: Any) -> None:
        client, name = self.stack.client("lambda"), self.function(role)
        client.update_function_configuration(FunctionName=name, **what)
        end = time.monotonic() + 60
        while client.get_function_configuration(FunctionName=name)["LastUpdateStatus"] == "InProgress":
            assert time.monotonic() < end, f"{role} isn't configured"
            time.sleep(0.1)


@contextmanager
def staged(counts: int, broken: Broken | None = None) -> Iterator[Stage]:
    """A stack of this run's own, gone at the end, with so many datasets that count loads; or with a broken product."""
    home = STATE / "test"
    home.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="chaos-", dir=home))
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        for name, value in SETTINGS.items():
            patch.setenv(name, value)
        stack = DisturbedStack(folder, durable=False)
        with (
            serving() as exports,
            proxied(
                aws=(stack.endpoint, of_aws),
                triples=(f"http://127.0.0.1:{stack.ports['oxigraph']}", of_triples),
                exports=(exports.url.removesuffix("/v1"), of_exports),
            ) as proxies,
        ):
            stack.proxies = proxies
            exports.patience = 1
            try:
                if broken:
                    twin = broken_package(packaged(), folder / "package", broken)
                    patch.setattr("localstack.deploy.packaged", lambda: twin)
                stage = _furnished(stack, proxies, exports, counts, patch, broken)
                with stage.http:
                    yield stage
            finally:
                for process in [process for service in stack.services for process in service.processes()]:
                    process.kill()  # nothing of it is needed any more
                stack.down()
    data = stack.postgresql.data.parent if stack.postgresql else folder
    if data != folder / "postgresql":
        shutil.rmtree(data, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _furnished(
    stack: DisturbedStack,
    proxies: dict[str, Proxy],
    exports: DataService,
    counts: int,
    patch: pytest.MonkeyPatch,
    broken: Broken | None,
) -> Stage:
    from chalicelib.settings import settings

    with ThreadPoolExecutor() as pool:
        package_made = pool.submit(packaged)  # beside the services' start
        try:
            stack.start()
        except ServiceError:  # a busy machine's first start, with every file to be read
            stack.start()
        package_made.result()
    dsn = stack.environment()["DATABASE_URL"]
    with psycopg.connect(dsn, autocommit=True) as admin:
        if broken and broken.function:
            admin.execute(broken_function(broken))
        admin.execute("create database outside")
    with psycopg.connect(make_conninfo(dsn, dbname="outside"), autocommit=True) as outside:
        outside.execute(OUTSIDE)
    where = {name: str(conninfo_to_dict(dsn)[name]) for name in ("host", "port")} | {"dbname": "outside"}
    stack.keep("LEASEWAY_SECRET_READINGS", make_conninfo(**where, user="chaos_reader", password="reader"))
    stack.keep("LEASEWAY_SECRET_MART", make_conninfo(**where, user="chaos_writer", password="writer"))
    deploy(stack)
    functions = {function_name(stack, role): role for role in ROLES}
    for name, value in stack.environment().items():
        patch.setenv(name, value)
    settings.cache_clear()
    names = ("counts", *(f"counts{n}" for n in range(2, counts + 1)))
    try:
        token = _register(dsn, names)
    finally:
        settings.cache_clear()
    stage = Stage(stack, proxies, exports, token, functions, names)
    stage._configure("Worker", Timeout=INVOCATION)
    client = stack.client("lambda")
    [mapping] = client.list_event_source_mappings(FunctionName=stage.function("Worker"))["EventSourceMappings"]
    client.update_event_source_mapping(UUID=mapping["UUID"], ScalingConfig={"MaximumConcurrency": AT_ONCE})
    return stage


def _register(dsn: str, counts: tuple[str, ...]) -> str:
    """Connections, sources, datasets and the manifest; an operator's token."""
    from chalicelib.datasets import registry
    from chalicelib.datasets.definition import Definition
    from chalicelib.db import Database
    from chalicelib.pipelines.refresh import registry as refreshes
    from chalicelib.pipelines.refresh.manifest import Manifest
    from chalicelib.security import create_token

    db = Database(dsn)
    registry.add_connection(db, "readings", "LEASEWAY_SECRET_READINGS", max_jobs=3)
    registry.add_connection(db, "mart", "LEASEWAY_SECRET_MART")
    registry.register_source(db, "readings", "readings", relation="feed.readings", query=None)
    for dataset in ("stock", *counts):
        registry.register_store(db, dataset, dataset)
    for dataset, changes in (DATASETS | {name: COUNTS | {"source": name} for name in counts}).items():
        with db.transaction() as tx:
            registry.put_definition(tx, dataset, Definition.parse(ABOUT | changes))
    contracts = [
        CONTRACT | {"name": name, "target": {"connection": "mart", "table": table}} for name, table in CONTRACTS.items()
    ]
    contracts[1]["depends_on"] = ["readings"]
    refreshes.register(db, Manifest.parse({"contracts": contracts}))
    token = create_token(db, "operator of the chaos", "operator")
    db.close()
    return token


def package(stack: Stack) -> str:
    """The SHA-256 of the package that is deployed: what refreshes may go back to."""
    listed = stack.client("s3").list_objects_v2(Bucket=CODE_BUCKET)["Contents"]
    return next(str(item["Key"])[:-4] for item in listed if str(item["Key"]).endswith(".zip"))
