"""The Runtime API that the process executor serves to a function's process."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from leaseway_process_executor.runtime_api import InitFailed, Invocation, Outcome, RuntimeApi

PREFIX = "/2018-06-01/runtime"
INVOCATION = Invocation("id-1", b'{"a": 1}', "arn:function", "Root=1", 1_700_000_000_000)


@pytest.fixture
def api() -> Iterator[RuntimeApi]:
    api = RuntimeApi()
    yield api
    api.end("the test is over")


def call(api: RuntimeApi, method: str, path: str, body: Any = None, **options: Any) -> http.client.HTTPResponse:
    connection = http.client.HTTPConnection(api.address, timeout=5)
    connection.request(method, PREFIX + path, body, **options)
    answer = connection.getresponse()
    answer.content = answer.read()  # type: ignore[attr-defined]
    connection.close()
    return answer


def next_invocation(api: RuntimeApi) -> Any:
    return call(api, "GET", "/invocation/next")


def test_a_process_fetches_an_invocation_and_leaves_its_outcome(api: RuntimeApi) -> None:
    outcome = api.submit(INVOCATION)
    given = next_invocation(api)
    assert given.content == b'{"a": 1}'
    assert given.headers["Lambda-Runtime-Aws-Request-Id"] == "id-1"
    assert given.headers["Lambda-Runtime-Deadline-Ms"] == "1700000000000"
    assert given.headers["Lambda-Runtime-Invoked-Function-Arn"] == "arn:function"
    assert given.headers["Lambda-Runtime-Trace-Id"] == "Root=1"
    assert call(api, "POST", "/invocation/id-1/response", b'"done"').status == 202
    assert outcome.result(0) == Outcome(b'"done"', is_error=False)


def test_asking_for_work_means_ready(api: RuntimeApi) -> None:
    with pytest.raises(TimeoutError):
        api.wait_until_ready(0)
    api.submit(INVOCATION)
    next_invocation(api)
    api.wait_until_ready(0)


def test_an_error_of_the_handler_is_an_outcome(api: RuntimeApi) -> None:
    outcome = api.submit(INVOCATION)
    next_invocation(api)
    call(api, "POST", "/invocation/id-1/error", b'{"errorType": "ValueError"}')
    assert outcome.result(0).is_error


def test_an_error_of_the_start_is_told_to_who_waits_for_it(api: RuntimeApi) -> None:
    call(api, "POST", "/init/error", b'{"errorType": "Runtime.ImportModuleError"}')
    with pytest.raises(InitFailed, match="ImportModuleError"):
        api.wait_until_ready(0)


def test_a_chunked_answer_is_put_together(api: RuntimeApi) -> None:
    outcome = api.submit(INVOCATION)
    call(api, "POST", "/invocation/id-1/response", iter([b'"do', b'ne"']), encode_chunked=True)
    assert outcome.result(0).body == b'"done"'


@pytest.mark.parametrize(
    "cut_off",
    [
        b'Content-Length: 6\r\n\r\n"don',
        b'Transfer-Encoding: chunked\r\n\r\n6\r\n"don',
        b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_an_answer_cut_off_by_the_process_s_death_is_no_answer(api: RuntimeApi, cut_off: bytes) -> None:
    outcome = api.submit(INVOCATION)
    host, port = api.address.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(f"POST {PREFIX}/invocation/id-1/response HTTP/1.1\r\nHost: x\r\n".encode() + cut_off)
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b""
    assert not outcome.done()


def test_the_answer_to_another_invocation_or_a_second_one_is_refused(api: RuntimeApi) -> None:
    outcome = api.submit(INVOCATION)
    assert call(api, "POST", "/invocation/id-0/response", b"0").status == 400
    assert call(api, "POST", "/invocation/id-1/response", b"1").status == 202
    assert call(api, "POST", "/invocation/id-1/response", b"2").status == 400
    assert outcome.result(0).body == b"1"
    assert call(api, "POST", "/invocation/id-1/other", b"").status == 404
    assert call(api, "GET", "/extension/register").status == 404


def test_the_process_s_end_answers_whatever_waits_now_and_later() -> None:
    api = RuntimeApi()
    running = api.submit(INVOCATION)
    api.end("Runtime exited with error: signal: killed")
    later = api.submit(INVOCATION)
    for outcome in (running.result(0), later.result(0)):
        assert outcome.is_error
        assert json.loads(outcome.body) == {
            "errorType": "Runtime.ExitError",
            "errorMessage": "RequestId: id-1 Error: Runtime exited with error: signal: killed",
        }
    with pytest.raises(InitFailed, match="signal: killed"):
        api.wait_until_ready(0)
