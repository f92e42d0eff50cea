"""From a cold process to the first 202 and to the first finished step, from the package that is deployed.

A process is started as Lambda starts one: the package's folder and the layer's, its own interpreter, the Runtime API.
The disk's cache is warm. PostgreSQL, object storage and SQS (moto) and the triple store are on this machine.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import boto3
import psycopg
from leaseway_process_executor.function_process import FunctionProcess
from leaseway_process_executor.runtime_api import Invocation

from chalicelib.datasets import registry
from chalicelib.datasets.definition import Definition
from chalicelib.db import Database
from chalicelib.security import create_token
from chalicelib.settings import settings
from localstack.deploy import packaged
from localstack.postgresql import free_ports
from localstack.stack import CATALOG

from .report import CHECKOUT, Size, ratios, spread, table
from .server import PUBLIC_URL, Server

PYTHON = CHECKOUT / ".leaseway" / "functions-env" / "bin" / "python"
BUCKET = "leaseway-files"
DEFINITION = {
    "title": {"en": "Trees"},
    "description": {"en": "Every tree of the city."},
    "keywords": {"en": ["trees"]},
    "languages": ["en"],
    "publisher": {"name": {"en": "Office"}, "iri": "https://office.example.org/id"},
    "contact": {"name": {"en": "Open data desk"}, "email": "opendata@example.org"},
    "themes": ["ENVI"],
    "licence": "CC0",
    "source": "trees",
    "columns": [{"name": "id", "type": "integer"}, {"name": "name", "type": "text"}],
}

ROWS = {
    "api ready": "API: the code is loaded",
    "202": "**API: the first 202** (job committed, wake-up sent)",
    "worker ready": "worker: the code is loaded",
    "EXPORTED": "**worker: the first finished step** (100 records, three files in object storage)",
    "PUBLISHED": "worker: a publication's last step (metadata rendered and checked, catalogue, version)",
}


def run(size: Size, server: Server, folder: Path) -> list[str]:
    package = packaged()
    compiled = unpack(package, folder / "compiled")
    bare = unpack(package, folder / "bare")
    removed = [path for path in bare.rglob("__pycache__") if path.is_dir()]
    assert removed, "the package has no compiled files"
    for path in removed:
        shutil.rmtree(path)
    took: dict[bool, dict[str, list[float]]] = {with_files: {name: [] for name in ROWS} for with_files in (True, False)}
    with server.database() as dsn, services() as (aws, store):
        environment = office(server, dsn, aws, store)
        token = environment.pop("TOKEN")
        # The interpreter's own packages are compiled on AWS: this start compiles what isn't.
        with function(compiled, "app.worker", environment, folder, read_only=False) as helper:
            helper.process.wait_until_ready(120)
            warm_up = int(size.runs > 1)
            for n in range(size.runs + warm_up):
                for with_files in (True, False):
                    measured = one(compiled if with_files else bare, dsn, environment, token, helper, folder)
                    if n >= warm_up:  # the first round is for the caches
                        for name, seconds in measured.items():
                            took[with_files][name].append(seconds * 1000)
    rows: list[tuple[str, ...]] = [("from the start of a process, ms", "compiled files", "without", "ratio")]
    for name, label in ROWS.items():
        with_, without = took[True][name], took[False][name]
        rows.append((label, spread(with_, 0), spread(without, 0), spread(ratios(without, with_))))
    megabytes = ", ".join(
        f"{name} {(package / file).stat().st_size / 1e6:.1f} MB"
        for name, file in (("code", "deployment.zip"), ("layer", "layer-deployment.zip"))
    )
    return [*table(*rows), "", f"The package, compiled files included: {megabytes}."]


def one(
    code: Path, dsn: str, environment: Mapping[str, str], token: str, helper: "Function", folder: Path
) -> dict[str, float]:
    """One publication, whose API, export and last step each begin with a cold process; milestones in seconds."""
    found: dict[str, float] = {}
    with function(code, "app.app", environment, folder) as api:
        found["api ready"], answer, found["202"] = api.first(publish(token))
    assert answer["statusCode"] == 202, answer
    publication = json.loads(answer["body"])["id"]
    helper.invoke(wake_up(publication))  # GET_DATA, which starts the export
    with psycopg.connect(dsn, autocommit=True) as connection:
        query = "select id::text from engine.job where pipeline = 'export' and finished_at is null"
        export = connection.execute(query).fetchone()[0]
        with function(code, "app.worker", environment, folder) as worker:
            found["worker ready"], _, found["EXPORTED"] = worker.first(wake_up(export))
        # It would come back in two seconds.
        connection.execute("update engine.job set run_at = accepted_at where id = %s", [publication])
        with function(code, "app.worker", environment, folder) as worker:
            _, _, found["PUBLISHED"] = worker.first(wake_up(publication))
        for job, state in ((export, "EXPORTED"), (publication, "PUBLISHED")):
            now = connection.execute("select state from engine.job where id = %s", [job]).fetchone()
            assert now == (state,), f"expected {state}, found {now}"
    return found


class Function:
    """A function's process."""

    def __init__(self, began: float, process: FunctionProcess):
        self.began = began
        self.process = process

    def first(self, event: dict[str, object]) -> tuple[float, dict[str, object], float]:
        """Seconds until it was ready, the answer to its first invocation, seconds until that was there."""
        self.process.wait_until_ready(120)
        ready = time.perf_counter() - self.began
        answer = self.invoke(event)
        return ready, answer, time.perf_counter() - self.began

    def invoke(self, event: dict[str, object]) -> dict[str, object]:
        deadline = int((time.time() + 120) * 1000)
        invocation = Invocation(str(uuid4()), json.dumps(event).encode(), "arn:function", "Root=1", deadline)
        outcome = self.process.submit(invocation).result(120)
        assert not outcome.is_error, outcome.body.decode()
        found: dict[str, object] = json.loads(outcome.body)
        return found


@contextmanager
def function(
    code: Path, handler: str, environment: Mapping[str, str], folder: Path, *, read_only: bool = True
) -> Iterator[Function]:
    """A new process of a function; as on Lambda it can't write beside its code."""
    layer = code / "layer" / "python" / "lib" / "python3.13" / "site-packages"
    paths = {"PYTHONPATH": os.pathsep.join([str(code), str(layer)]), "LAMBDA_TASK_ROOT": str(code)}
    began = time.perf_counter()
    process = FunctionProcess(
        str(PYTHON),
        handler,
        folder=code,
        env={**environment, **paths, **({"PYTHONDONTWRITEBYTECODE": "1"} if read_only else {})},
        log=folder / "functions.log",
    )
    try:
        yield Function(began, process)
    except BaseException:
        print((folder / "functions.log").read_text()[-3000:], file=sys.stderr)
        raise
    finally:
        process.kill()


def unpack(package: Path, folder: Path) -> Path:
    for name, where in (("deployment.zip", folder), ("layer-deployment.zip", folder / "layer")):
        with zipfile.ZipFile(package / name) as packed:
            packed.extractall(where)
    return folder


def publish(token: str) -> dict[str, object]:
    """What API Gateway hands on for POST /datasets/trees/publications."""
    return {
        "resource": "/datasets/{dataset}/publications",
        "path": "/datasets/trees/publications",
        "httpMethod": "POST",
        "headers": {"authorization": f"Bearer {token}", "content-type": "application/json"},
        "multiValueHeaders": {},
        "queryStringParameters": None,
        "multiValueQueryStringParameters": None,
        "pathParameters": {"dataset": "trees"},
        "stageVariables": None,
        "requestContext": {
            "httpMethod": "POST",
            "resourcePath": "/datasets/{dataset}/publications",
            "path": "/datasets/trees/publications",
            "identity": {"sourceIp": "127.0.0.1"},
            "requestId": str(uuid4()),
        },
        "body": None,
        "isBase64Encoded": False,
    }


def wake_up(job: str) -> dict[str, object]:
    """What SQS hands on."""
    record = {
        "messageId": str(uuid4()),
        "receiptHandle": "r",
        "body": job,
        "attributes": {},
        "messageAttributes": {},
        "md5OfBody": "",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:123456789012:leaseway-work",
        "awsRegion": "us-east-1",
    }
    return {"Records": [record]}


def office(server: Server, dsn: str, aws: str, store: str) -> dict[str, str]:
    """A dataset of 100 trees, and the environment of the functions; TOKEN in it is a publisher's."""
    app = server.of_the_app(dsn)
    given = {
        "AWS_ENDPOINT_URL": aws,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    client = {
        "endpoint_url": aws,
        "region_name": "us-east-1",
        "aws_access_key_id": "test",
        "aws_secret_access_key": "test",
    }
    boto3.client("s3", **client).create_bucket(Bucket=BUCKET)
    queues = {
        name: boto3.client("sqs", **client).create_queue(QueueName=f"leaseway-{name}")["QueueUrl"]
        for name in ("work", "fetch")
    }
    environment = {
        **CATALOG,
        **given,
        "PATH": "/usr/bin:/bin",
        "HOME": "/nonexistent",
        "LANG": "en_US.UTF-8",
        "PYTHONUNBUFFERED": "1",
        "AWS_EXECUTION_ENV": "AWS_Lambda_python3.13",
        "DATABASE_URL": app,
        "PUBLIC_URL": PUBLIC_URL,
        "LEASEWAY_HASH_KEY": "benchmarks" * 4,
        "LEASEWAY_WORK_QUEUE_URL": queues["work"],
        "LEASEWAY_FETCH_QUEUE_URL": queues["fetch"],
        "LEASEWAY_TRIPLE_STORE_UPDATE_URL": f"{store}/update",
        "LEASEWAY_TRIPLE_STORE_QUERY_URL": f"{store}/query",
        "LEASEWAY_SECRET_SRC": app,
    }
    server.run(
        dsn,
        "create schema src",
        "create table src.trees as select n as id, 'tree ' || n as name from generate_series(1, 100) n",
        "grant usage on schema src to leaseway_app",
        "grant select on src.trees to leaseway_app",
    )
    database = Database(app)
    registry.add_connection(database, "src", "LEASEWAY_SECRET_SRC")
    registry.register_source(database, "trees", "src", "src.trees", None)
    with database.transaction() as tx:
        registry.put_definition(tx, "trees", Definition.parse(DEFINITION))
    with patch.dict(os.environ, environment):
        settings.cache_clear()
        token = create_token(database, "bench", "publisher")
    settings.cache_clear()
    database.close()
    return environment | {"TOKEN": token}


@contextmanager
def services() -> Iterator[tuple[str, str]]:
    """The addresses of an AWS (moto's server) and of a triple store in memory."""
    aws, store = (f"http://127.0.0.1:{port}" for port in free_ports(2))
    programs = Path(sys.executable).parent
    processes = [
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in (
            [programs / "moto_server", "--host", "127.0.0.1", "--port", aws.rpartition(":")[2]],
            [programs / "oxigraph", "serve", "--bind", store.removeprefix("http://")],
        )
    ]
    try:
        for address in (f"{aws}/moto-api/", f"{store}/"):
            wait_for(lambda address=address: urllib.request.urlopen(address, timeout=5).close())
        yield aws, store
    finally:
        for process in processes:
            process.kill()
            process.wait()


def wait_for(question: Callable[[], None]) -> None:
    """Ask until there is an answer."""
    end = time.monotonic() + 60
    while True:
        try:
            return question()
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)
