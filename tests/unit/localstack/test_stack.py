"""What a stack keeps and what it tells whom, without starting anything."""

import json
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from infra.package import CHECKOUT, STAGE
from localstack.deploy import _Deployment
from localstack.postgresql import PostgreSQL
from localstack.services import Service, ServiceError
from localstack.stack import Stack

FOREIGN = ("DATABASE_URL", "PUBLIC_URL", "LOCALSTACK_ENDPOINT", "LEASEWAY_LEASE")


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FOREIGN:
        monkeypatch.delenv(name, raising=False)


def test_ports_keys_and_what_was_kept_are_the_same_for_the_next_command(tmp_path: Path) -> None:
    first = Stack(tmp_path / "a stack")
    first.keep("LEASEWAY_SECRET_NYC", "postgresql://reader@somewhere")
    environment, url = first.environment(), first.url

    again = Stack(tmp_path / "a stack")
    assert again.environment() == environment
    assert again.url == url
    assert environment["LEASEWAY_SECRET_NYC"] == "postgresql://reader@somewhere"

    again.forget("LEASEWAY_SECRET_NYC")
    assert environment.keys() - first.environment().keys() == {"LEASEWAY_SECRET_NYC"}


def test_two_stacks_share_neither_a_port_nor_a_secret(tmp_path: Path) -> None:
    one, two = Stack(tmp_path / "one"), Stack(tmp_path / "two")

    assert not set(one.ports.values()) & set(two.ports.values())
    assert len(set(one.ports.values())) == len(one.ports)
    secrets = [name for name in one.environment() if "KEY" in name and name.startswith("LEASEWAY_")]
    assert secrets
    assert not [name for name in secrets if one.environment()[name] == two.environment()[name]]


def test_what_takes_its_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack, told = Stack(tmp_path), []
    stack.say = told.append
    monkeypatch.setattr(PostgreSQL, "start", lambda server: server.dsn)
    monkeypatch.setattr(Service, "start", lambda service: None)
    monkeypatch.setattr(Stack, "_migrate", lambda stack: None)

    stack.start()

    assert told == [f"starting {name}" for name in ("postgresql", "localstack", "oxigraph", "front")]


def test_what_takes_long_is_told_again_and_again_until_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localstack.stack.SILENCE", 0.001)
    stack, told, twice = Stack(tmp_path), [], threading.Event()

    def say(text: str) -> None:
        told.append(text)
        if len(told) == 2:
            twice.set()

    stack.say = say
    with stack.at("deploying"):
        assert twice.wait(30)

    assert told[0] == "still deploying, for 0 s"
    assert "still at it" not in {thread.name for thread in threading.enumerate()}


def test_who_waits_for_another_command_says_so(tmp_path: Path) -> None:
    stack, told = Stack(tmp_path), []
    stack.say = told.append
    other = Stack(tmp_path)

    with ThreadPoolExecutor(1) as pool:
        with other.alone():
            waiting = pool.submit(stack.keep, "A", "1")
            while not told:
                assert not waiting.done()
        waiting.result()

    assert told == ["another command works on the local stack; this one waits for it"]


@pytest.mark.parametrize("left", ["", '{"front": 40', "40001"])
def test_a_file_that_broke_off_is_named_and_never_made_anew(tmp_path: Path, left: str) -> None:
    file = tmp_path / "ports.json"
    file.write_text(left)

    with pytest.raises(ServiceError, match=r"ports\.json is damaged"):
        _ = Stack(tmp_path).ports
    assert file.read_text() == left


def test_secrets_are_readable_by_their_owner_alone(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    stack.environment()
    stack.keep("LEASEWAY_SECRET_NYC", "x")

    secret = [tmp_path / "secrets.json", tmp_path / "environment.json", tmp_path / "postgresql" / "password"]
    assert [stat.S_IMODE(file.stat().st_mode) for file in secret] == [0o600] * 3


def test_settings_of_the_callers_shell_reach_the_app_but_not_those_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEWAY_LEASE", "12")
    monkeypatch.setenv("LEASEWAY_TOKEN", "secret")
    stack = Stack(tmp_path)

    assert stack.functions_environment(secrets_of_connections=False)["LEASEWAY_LEASE"] == "12"
    assert "LEASEWAY_TOKEN" not in stack.functions_environment(secrets_of_connections=True)


def test_running_servers_are_used_where_the_environment_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://admin@elsewhere/leaseway")
    monkeypatch.setenv("LOCALSTACK_ENDPOINT", "http://elsewhere:4566")
    stack = Stack(tmp_path)

    assert stack.postgresql is None
    assert [service.name for service in stack.services] == ["oxigraph", "front"]
    assert stack.environment()["DATABASE_URL"] == "postgresql://admin@elsewhere/leaseway"
    assert stack.environment()["AWS_ENDPOINT_URL"] == "http://elsewhere:4566"


def test_a_proxy_before_the_front_port_is_named_once_and_its_address_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBLIC_URL", "https://data.example.org/")
    stack = Stack(tmp_path)
    assert stack.environment()["PUBLIC_URL"] == "https://data.example.org"
    assert stack.url.startswith("http://127.0.0.1:")

    stack.keep("PUBLIC_URL", stack.public_url)  # as the first start does
    monkeypatch.setenv("PUBLIC_URL", "https://another.example.org")
    assert Stack(tmp_path).public_url == "https://data.example.org"


def test_what_a_stack_told_a_command_makes_it_no_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in Stack(tmp_path).environment().items():
        monkeypatch.setenv(name, value)
    stack = Stack(tmp_path)

    assert stack.postgresql is not None
    assert [service.name for service in stack.services] == ["localstack", "oxigraph", "front"]


def test_functions_have_the_apps_login_and_only_worker_and_cleanup_the_secrets_of_connections(tmp_path: Path) -> None:
    stack = Stack(tmp_path)
    stack.keep("LEASEWAY_SECRET_NYC", "postgresql://reader@somewhere")
    queues = {"LEASEWAY_WORK_QUEUE_URL": {"Ref": "WorkQueue"}}
    functions = {
        name: {"Type": "AWS::Serverless::Function", "Properties": {"Environment": {"Variables": {"A": "1"} | queues}}}
        for name in ("APIHandler", "Worker", "Fetcher", "Recovery", "Cleanup", "CatchUp")
    }
    _Deployment(stack).fill_functions({"Resources": functions}, {"deployment.zip": "x.zip"})

    told = {name: function["Properties"]["Environment"]["Variables"] for name, function in functions.items()}
    assert [name for name, variables in told.items() if "LEASEWAY_SECRET_NYC" in variables] == ["Worker", "Cleanup"]
    assert {variables["DATABASE_URL"].split(":")[1] for variables in told.values()} == {"//leaseway_app"}
    assert all(variables["LEASEWAY_WORK_QUEUE_URL"] == {"Ref": "WorkQueue"} for variables in told.values())
    assert all("A" not in variables for variables in told.values())


def test_on_aws_only_worker_and_cleanup_may_read_the_secrets_of_connections() -> None:
    """Cleanup drops staging tables in the targets' databases, as it does here."""
    stage = json.loads((CHECKOUT / ".chalice" / "config.json").read_text())["stages"][STAGE]
    assert {
        name
        for name, function in stage["lambda_functions"].items()
        for statement in json.loads((CHECKOUT / ".chalice" / function["iam_policy_file"]).read_text())["Statement"]
        if statement["Action"] == "secretsmanager:GetSecretValue" and "leaseway/source/" in statement["Resource"]
    } == {"worker", "cleanup"}


def test_a_message_stays_hidden_for_six_time_outs_of_its_function_and_two_weeks_when_given_up() -> None:
    resources = json.loads((CHECKOUT / "infra" / "resources.json").read_text())["Resources"]
    stage = json.loads((CHECKOUT / ".chalice" / "config.json").read_text())["stages"][STAGE]
    for function, queue, dead in (
        ("worker", "WorkQueue", "WorkDeadLetters"),
        ("fetcher", "FetchQueue", "FetchDeadLetters"),
    ):
        properties = resources[queue]["Properties"]
        assert properties["VisibilityTimeout"] >= 6 * stage["lambda_functions"][function]["lambda_timeout"]
        assert properties["RedrivePolicy"]["maxReceiveCount"] == 5
        assert resources[dead]["Properties"]["MessageRetentionPeriod"] == 14 * 24 * 3600


def test_T24_the_alarm_reads_how_many_dead_letters_are_visible() -> None:
    """Not how many were sent: what SQS moves by itself isn't counted there."""
    resources = json.loads((CHECKOUT / "infra" / "resources.json").read_text())["Resources"]
    for queue in ("Work", "Fetch"):
        alarm = resources[f"{queue}DeadLettersAlarm"]["Properties"]
        dead = resources[f"{queue}DeadLetters"]["Properties"]["QueueName"]
        assert alarm["MetricName"] == "ApproximateNumberOfMessagesVisible"
        assert alarm["Dimensions"] == [{"Name": "QueueName", "Value": dead}]
        assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("GreaterThanThreshold", 0)


def test_the_minute_tick_has_no_records_and_no_retries() -> None:
    resources = json.loads((CHECKOUT / "infra" / "resources.json").read_text())["Resources"]
    for function in ("Worker", "Fetcher"):
        rule = resources[f"{function}Tick"]["Properties"]
        (target,) = rule["Targets"]
        assert rule["ScheduleExpression"] == "rate(1 minute)"
        assert json.loads(target["Input"]) == {"Records": []}
        assert target["RetryPolicy"]["MaximumRetryAttempts"] == 0
        assert resources[f"{function}NoRetries"]["Properties"]["MaximumRetryAttempts"] == 0
