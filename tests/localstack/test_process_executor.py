"""Functions run as processes of this machine, and behave as on Lambda when all goes wrong."""

import base64
import contextlib
import hashlib
import io
import json
import os
import signal
import time
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import psutil
import pytest

from tests.localstack.conftest import LocalStack, until

ROLE = "arn:aws:iam::000000000000:role/function"
PROBE = Path(__file__).with_name("probe.py")


class Function:
    """A deployed function and what it noted."""

    def __init__(self, stack: LocalStack, name: str, record: Path) -> None:
        self.stack, self.name, self.record = stack, name, record
        self.aws = stack.client("lambda")

    def invoke(self, **event: Any) -> dict[str, Any]:
        """Returns the handler's answer, or what went wrong as `errorType` and `errorMessage`."""
        answer = self.aws.invoke(FunctionName=self.name, Payload=json.dumps(event), LogType="Tail")
        log = base64.b64decode(answer["LogResult"]).decode()
        return {**json.loads(answer["Payload"].read()), "log": log, "failed": "FunctionError" in answer}

    def noted(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.record.read_text().splitlines()] if self.record.exists() else []

    def running(self) -> dict[str, Any] | None:
        """The status file of a process that is busy with this function."""
        for file in self.stack.status_folder.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):
                status: dict[str, Any] = json.loads(file.read_text())
                if status["function"] == self.name and status["request_id"]:
                    return status
        return None


type Deploy = Callable[..., Function]


@pytest.fixture
def deploy(localstack: LocalStack, tmp_path: Path) -> Deploy:
    return lambda handler="invoked", **settings: deploy_to(localstack, tmp_path, handler, **settings)


def deploy_to(stack: LocalStack, folder: Path, handler: str, *, code: str | None = None, **settings: Any) -> Function:
    name = f"probe-{uuid4().hex[:8]}"
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as z:
        z.writestr("probe.py", code or PROBE.read_text())
    stack.client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.13",
        Handler=f"probe.{handler}",
        Role=ROLE,
        Code={"ZipFile": package.getvalue()},
        Environment={"Variables": {"RECORD": str(folder / name)}},
        **{"Timeout": 10, **settings},
    )
    return Function(stack, name, folder / name)


class Queue:
    """A queue with a dead letter queue, and a mapping to a function."""

    def __init__(self, function: Function, *, receives: int = 1, visibility: int = 30, **mapping: Any) -> None:
        self.sqs = function.stack.client("sqs")
        self.dead = self.sqs.create_queue(QueueName=f"{function.name}-dead")["QueueUrl"]
        redrive = {"deadLetterTargetArn": self.arn(self.dead), "maxReceiveCount": receives}
        attributes = {"VisibilityTimeout": str(visibility), "RedrivePolicy": json.dumps(redrive)}
        self.url = self.sqs.create_queue(QueueName=function.name, Attributes=attributes)["QueueUrl"]
        function.aws.create_event_source_mapping(
            EventSourceArn=self.arn(self.url),
            FunctionName=function.name,
            **{"BatchSize": 1, "FunctionResponseTypes": ["ReportBatchItemFailures"], **mapping},
        )

    def arn(self, url: str) -> str:
        answer = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])
        return str(answer["Attributes"]["QueueArn"])

    def send(self, *bodies: str) -> None:
        for body in bodies:
            self.sqs.send_message(QueueUrl=self.url, MessageBody=body)

    def dead_letters(self) -> list[str]:
        return [m["Body"] for m in self.sqs.receive_message(QueueUrl=self.dead).get("Messages", [])]


def gone(pid: int) -> bool:
    """Whether a process has ended; where nobody reaps orphans it stays as a zombie."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def order(seconds: float, **more: Any) -> str:
    return json.dumps({"seconds": seconds, **more})


def test_a_process_is_started_once_and_reused(deploy: Deploy) -> None:
    function = deploy()
    cold, warm = function.invoke(), function.invoke()
    assert cold["pid"] == warm["pid"]
    assert cold["env"]["AWS_LAMBDA_FUNCTION_NAME"] == function.name
    assert cold["env"]["AWS_ENDPOINT_URL"] == function.stack.url
    assert 9000 < warm["remaining"] <= 10_000
    assert "loaded\nSTART RequestId" in cold["log"]
    assert "Init Duration" in cold["log"]
    assert "loaded" not in warm["log"]
    assert "asked to None\nEND RequestId" in warm["log"]


def test_a_process_that_exits_fails_its_invocation_and_the_next_one_gets_a_new_process(deploy: Deploy) -> None:
    function = deploy()
    before = function.invoke()
    crash = function.invoke(do="exit")
    assert crash["failed"]
    assert crash["errorType"] == "Runtime.ExitError"
    assert crash["errorMessage"].endswith("Runtime exited with error: exit status 7")
    after = function.invoke()
    assert not after["failed"]
    assert after["pid"] != before["pid"]


def test_the_busy_process_of_a_function_is_found_and_killed_by_an_operator(deploy: Deploy) -> None:
    function = deploy()
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(function.invoke, do="hang")
        status = until(function.running)
        log = Path(status["log"])
        until(lambda: "child" in log.read_text())  # the log is live: it can be searched for what the process works on
        child = int(log.read_text().split("child ")[1])
        assert psutil.Process(status["pid"]).environ()["AWS_LAMBDA_FUNCTION_NAME"] == function.name
        os.kill(status["pid"], signal.SIGKILL)
        crash = answer.result()
    assert crash["errorMessage"].startswith(f"RequestId: {status['request_id']} Error: ")
    assert crash["errorMessage"].endswith("Runtime exited with error: signal: killed")
    assert gone(child)
    assert function.running() is None
    assert function.invoke()["pid"] != status["pid"]


def test_an_invocation_ends_at_its_time_out_and_so_does_what_it_started(deploy: Deploy) -> None:
    function = deploy(Timeout=1)
    late = function.invoke(do="hang")
    assert late["failed"]
    assert late["errorMessage"].endswith("Task timed out after 1.00 seconds")
    assert gone(int(late["log"].split("child ")[1].split()[0]))
    assert not function.invoke()["failed"]


def test_code_that_cant_be_loaded_is_an_error_of_the_function_each_time(deploy: Deploy) -> None:
    function = deploy(code="import no_such_module")
    for _ in range(2):
        answer = function.aws.invoke(FunctionName=function.name)
        error = json.loads(answer["Payload"].read())
        assert answer["FunctionError"]
        assert error["errorType"] == "Runtime.ImportModuleError"
        assert "no_such_module" in error["errorMessage"]
    assert f"{function.name} can't start" in function.stack.log.read_text()


def test_a_restart_that_hangs_ends_at_the_time_out(deploy: Deploy) -> None:
    hangs_the_second_time = """
import os, time
if os.path.exists(os.environ["RECORD"]): time.sleep(300)
open(os.environ["RECORD"], "w").close()
def invoked(event, context): os._exit(1)
"""
    function = deploy(code=hangs_the_second_time, Timeout=1)
    function.aws.invoke(FunctionName=function.name)
    began = time.monotonic()
    answer = function.aws.invoke(FunctionName=function.name)
    assert json.loads(answer["Payload"].read())["errorType"] == "Sandbox.Timedout"
    assert time.monotonic() - began < 10


def test_parallel_invocations_have_a_process_each_and_reserved_concurrency_limits_them(deploy: Deploy) -> None:
    function = deploy()
    with ThreadPoolExecutor() as pool:
        pids = {a["pid"] for a in pool.map(lambda _: function.invoke(do="sleep", seconds=0.8), range(4))}
        assert len(pids) == 4
        function.aws.put_function_concurrency(FunctionName=function.name, ReservedConcurrentExecutions=1)
        busy = pool.submit(function.invoke, do="sleep", seconds=0.8)
        until(function.running)
        with pytest.raises(function.aws.exceptions.TooManyRequestsException):
            function.invoke()
        assert not busy.result()["failed"]


def test_an_asynchronous_invocation_is_repeated_under_one_request_id(deploy: Deploy) -> None:
    function = deploy()
    function.aws.invoke(FunctionName=function.name, InvocationType="Event", Payload='{"do": "exit"}')
    until(lambda: len(function.noted()) == 3)
    assert len({n["request"] for n in function.noted()}) == 1
    assert len({n["pid"] for n in function.noted()}) == 3


def test_only_the_failed_messages_of_a_batch_come_back_and_end_as_dead_letters(deploy: Deploy) -> None:
    function = deploy("received")
    function.invoke(Records=[])  # a cold start must not outlast the short visibility timeout
    queue = Queue(function, receives=2, visibility=2, BatchSize=10)
    good, bad = [order(0, n=n) for n in range(4)], order(0, fail=True)
    queue.send(*good[:2], bad, *good[2:])
    assert until(queue.dead_letters) == [bad]
    assert sorted(n["body"] for n in function.noted()) == sorted([*good, bad, bad])


def test_a_mapping_works_on_as_many_batches_as_its_maximum_concurrency_says(deploy: Deploy) -> None:
    function = deploy("received")
    Queue(function, ScalingConfig={"MaximumConcurrency": 2}).send(*[order(0.5, n=n) for n in range(6)])
    until(lambda: len(function.noted()) == 6)
    moments = sorted([(n["began"], 1) for n in function.noted()] + [(n["ended"], -1) for n in function.noted()])
    parallel = [sum(step for _, step in moments[: i + 1]) for i in range(len(moments))]
    assert max(parallel) == 2


def test_a_message_isnt_held_up_by_a_long_one_that_came_before_it(deploy: Deploy) -> None:
    function = deploy("received")
    queue = Queue(function, ScalingConfig={"MaximumConcurrency": 2})
    queue.send(order(8))
    until(function.running)
    time.sleep(1)  # the poller has found the queue empty meanwhile, more than once
    queue.send(order(0))
    assert until(function.noted)[0]["body"] == order(0)


def test_bodies_arrive_as_they_were_sent(deploy: Deploy) -> None:
    function = deploy("received")
    bodies = ['{"a":1}', '{"a":1.10, "a":2}', '"quoted"', "ü €", "null", "plain", ' {"b": [1,\n2]} ']
    Queue(function).send(*bodies)
    until(lambda: len(function.noted()) == len(bodies))
    assert {n["body"]: n["md5"] for n in function.noted()} == {
        body: hashlib.md5(body.encode()).hexdigest() for body in bodies
    }


def test_no_process_outlives_localstack(make_localstack: Callable[..., LocalStack], tmp_path: Path) -> None:
    stack = make_localstack()
    stack.start()
    busy, idle = deploy_to(stack, tmp_path, "invoked", Timeout=60), deploy_to(stack, tmp_path, "invoked")
    idle_pid = idle.invoke()["pid"]
    busy.aws.invoke(FunctionName=busy.name, InvocationType="Event", Payload='{"do": "hang"}')
    status = until(busy.running)
    until(lambda: "child" in Path(status["log"]).read_text())
    child = int(Path(status["log"]).read_text().split("child ")[1])
    stack.kill()
    for pid in (idle_pid, status["pid"], child):
        until(lambda pid=pid: gone(pid), 5)
    stack.start()
    assert not list(stack.status_folder.iterdir()), "what the kill left behind is cleared"


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"LAMBDA_RUNTIME_EXECUTOR": "proces"}, "LAMBDA_RUNTIME_EXECUTOR=proces: there is no executor of this name"),
        ({"LAMBDA_PROCESS_PYTHON": '{"python3.13": "/no/python"}'}, "/no/python for python3.13, which can't be run"),
    ],
)
def test_localstack_refuses_to_start_with(
    make_localstack: Callable[..., LocalStack], setting: dict[str, str], sentence: str
) -> None:
    assert sentence in make_localstack(**setting).refused()
