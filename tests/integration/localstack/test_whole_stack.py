"""The stack as a whole: up, killed altogether, up again, and everything is where it was. The real app is deployed."""

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from secrets import token_hex

import httpx
import psutil
import psycopg
import pytest

from localstack.deploy import deploy, function_name, packaged
from localstack.services import marked
from localstack.stack import FUNCTION, STATE, Stack

FOREIGN = ("DATABASE_URL", "LOCALSTACK_ENDPOINT", "PUBLIC_URL")
FOLDER = STATE / "test" / "a stack"


@pytest.fixture(scope="module", autouse=True)
def _alone() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in FOREIGN:
            patch.delenv(name, raising=False)
        package = packaged()  # one for all tests, whoever edits meanwhile
        patch.setattr("localstack.deploy.packaged", lambda: package)
        yield


@pytest.fixture(scope="module")
def stack(_alone: None) -> Iterator[Stack]:
    made = Stack(FOLDER, durable=False)
    made.up()
    yield made
    Stack(FOLDER, durable=False).down()
    assert not any(made.status().values())
    assert list(marked(made.folder, FUNCTION)) == []


TICKS = [
    ("CatchUp", "rate(1 minute)", None),
    ("Cleanup", "rate(15 minutes)", None),
    ("Fetcher", "rate(1 minute)", '{"Records": []}'),
    ("Recovery", "rate(1 minute)", None),
    ("Worker", "rate(1 minute)", '{"Records": []}'),
]


def ticks(stack: Stack) -> list[tuple[str, str, str | None]]:
    """Which function is called how often, with which input, by a rule that is enabled."""
    events = stack.client("events")
    found = [
        (target["Arn"].rsplit(":", 1)[1].split("-")[1], rule["ScheduleExpression"], target.get("Input"))
        for rule in events.list_rules()["Rules"]
        if rule["State"] == "ENABLED"
        for target in events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
    ]
    return sorted(found, key=str)


def test_the_deployment_is_what_the_template_says(stack: Stack) -> None:
    mappings = stack.client("lambda").list_event_source_mappings()["EventSourceMappings"]
    queues = {mapping["EventSourceArn"].rsplit(":", 1)[1]: mapping for mapping in mappings}
    assert set(queues) == {"leaseway-work", "leaseway-fetch"}
    for mapping in mappings:
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["BatchSize"] == 1
        assert mapping["ScalingConfig"]["MaximumConcurrency"] >= 2

    sqs = stack.client("sqs")
    url = stack.client("sqs").get_queue_url(QueueName="leaseway-work")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert json.loads(attributes["RedrivePolicy"])["deadLetterTargetArn"].endswith(":leaseway-work-dead")
    assert attributes["VisibilityTimeout"] == "720"

    assert ticks(stack) == TICKS


def test_nothing_listens_beyond_loopback(stack: Stack) -> None:
    assert stack.postgresql
    processes = [p for service in stack.services for p in service.processes()]
    processes += [psutil.Process(stack.postgresql.pid()), *marked(stack.folder, FUNCTION)]
    listening = {
        connection.laddr.ip
        for process in processes
        for connection in process.net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN
    }
    assert len(processes) >= 4
    assert listening == {"127.0.0.1"}


@pytest.mark.parametrize("function", ["Worker", "Fetcher", "Recovery", "Cleanup", "CatchUp"])
def test_every_function_runs_on_what_is_in_the_package(stack: Stack, function: str) -> None:
    tick = {
        "version": "0",
        "id": "1",
        "detail-type": "Scheduled Event",
        "source": "aws.events",
        "account": "0",
        "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": "us-east-1",
        "resources": [],
        "detail": {},
    }
    event = {"Records": []} if function in {"Worker", "Fetcher"} else tick
    answer = stack.client("lambda").invoke(
        FunctionName=function_name(stack, function), Payload=json.dumps(event).encode()
    )
    assert "FunctionError" not in answer, answer["Payload"].read()


def test_every_origin_may_read_over_the_front_port_and_none_is_told_who_stands_behind(stack: Stack) -> None:
    origin = {"Origin": "https://portal.example"}
    with httpx.Client(base_url=stack.url, timeout=30) as client:
        answer = client.get("/catalog", headers=origin)
        preflight = client.options("/catalog", headers=origin | {"Access-Control-Request-Method": "GET"})
        nobody = client.get("/internal/jobs")

    assert answer.headers["Content-Type"].startswith("text/turtle")
    assert [reply.headers["Access-Control-Allow-Origin"] for reply in (answer, preflight)] == ["*", "*"]
    assert "x-localstack" not in answer.headers
    assert nobody.status_code == 401
    assert nobody.headers["WWW-Authenticate"].startswith("Bearer")


def test_it_is_all_there_after_a_kill_of_everything(stack: Stack) -> None:
    stack.client("s3").put_object(Bucket="leaseway-files", Key="a/file.csv", Body=b"1;2")
    with psycopg.connect(stack.environment()["DATABASE_URL"]) as connection:
        connection.execute("create table if not exists kept (number int)")
        connection.execute("insert into kept values (1)")
    triples = stack.environment()["LEASEWAY_TRIPLE_STORE_UPDATE_URL"]
    update = {"Content-Type": "application/sparql-update"}
    httpx.post(triples, content="INSERT DATA { GRAPH <urn:g> { <urn:a> <urn:b> <urn:c> } }", headers=update)

    assert stack.postgresql
    for process in [*(p for service in stack.services for p in service.processes()), *marked(stack.folder, FUNCTION)]:
        process.kill()
    os.kill(stack.postgresql.pid() or 0, 9)

    again = Stack(FOLDER, durable=False)
    again.up()
    assert (again.url, again.endpoint) == (stack.url, stack.endpoint)
    assert ticks(again) == TICKS
    assert [api["id"] for api in again.client("apigateway").get_rest_apis()["items"]] == ["leaseway"]
    assert again.client("s3").get_object(Bucket="leaseway-files", Key="a/file.csv")["Body"].read() == b"1;2"
    kept = again.client("s3").list_objects_v2(Bucket="leaseway-deploy")["Contents"]
    assert len(kept) == 3  # code, layer, template: older ones don't pile up
    with psycopg.connect(again.environment()["DATABASE_URL"]) as connection:
        assert connection.execute("select count(*) > 0 from kept").fetchone() == (True,)
    query = again.environment()["LEASEWAY_TRIPLE_STORE_QUERY_URL"]
    said = httpx.get(query, params={"query": "ASK { GRAPH <urn:g> { <urn:a> <urn:b> <urn:c> } }"}).text
    assert "true" in said
    assert httpx.get(f"{again.url}/catalog").status_code == 200


def test_a_second_command_finds_it_all_running_and_deployed(stack: Stack) -> None:
    stack.up()
    before = {service.name: [p.pid for p in service.processes()] for service in stack.services}
    again = Stack(FOLDER, durable=False)

    again.start()
    assert not deploy(again)
    assert {service.name: [p.pid for p in service.processes()] for service in again.services} == before


def test_a_secret_that_is_kept_reaches_those_that_use_connections_alone(stack: Stack) -> None:
    stack.up()
    stack.keep("LEASEWAY_SECRET_TEST", f"postgresql://reader:{token_hex()}@somewhere")

    assert deploy(stack)
    functions = stack.client("lambda")
    told = {
        name: functions.get_function_configuration(FunctionName=function_name(stack, name))["Environment"]["Variables"]
        for name in ("Worker", "Fetcher", "APIHandler", "Recovery", "Cleanup", "CatchUp")
    }
    assert [name for name, variables in told.items() if "LEASEWAY_SECRET_TEST" in variables] == ["Worker", "Cleanup"]
    assert httpx.get(f"{stack.url}/catalog", timeout=30).status_code == 200
