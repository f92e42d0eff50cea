"""The front port: what it passes on, to whom and how, and what it keeps out. Upstream is a server that tells all."""

import asyncio
import gzip
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import boto3
import pytest
from aiohttp import ClientPayloadError, ClientSession, ClientTimeout, web
from aiohttp.test_utils import TestServer
from botocore.config import Config
from botocore.credentials import Credentials
from multidict import CIMultiDict
from yarl import URL

from localstack import front
from localstack.front import Front, application
from localstack.postgresql import free_ports

KEY = Credentials("LWKEY", "a secret of this stack")
TWO_SECONDS = ClientTimeout(total=2)


class Upstream:
    """A LocalStack that remembers what it was asked and answers as told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], bytes]] = []
        self.answer = web.Response(text="hello")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append((request.method, request.raw_path, dict(request.headers), await request.read()))
        return self.answer

    @property
    def last(self) -> tuple[str, str, dict[str, str], bytes]:
        return self.asked[-1]


class Caller:
    """Somebody before the front port."""

    def __init__(self, session: ClientSession, url: str, upstream: Upstream):
        self.session, self.url, self.upstream = session, url, upstream

    async def ask(self, method: str, target: str, **more: Any) -> tuple[int, dict[str, str], bytes]:
        address = target if target.startswith("http") else self.url + target
        async with self.session.request(method, URL(address, encoded=True), allow_redirects=False, **more) as answer:
            return answer.status, {name.lower(): value for name, value in answer.headers.items()}, await answer.read()

    def presign(self, operation: str, key: Credentials = KEY, seconds: int = 300, **params: str) -> str:
        client = boto3.client(
            "s3",
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id=key.access_key,
            aws_secret_access_key=key.secret_key,
            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        )
        asked = {"Bucket": "leaseway-files", "Key": "exports/a b+c.csv"} | params
        return client.generate_presigned_url(operation, Params=asked, ExpiresIn=seconds)


@asynccontextmanager
async def standing(upstream_is_there: bool = True) -> AsyncIterator[Caller]:
    upstream = Upstream()

    async def behind(request: web.Request) -> web.StreamResponse:
        return await upstream.handle(request)

    application_behind = web.Application(client_max_size=1 << 30)
    application_behind.router.add_route("*", "/{path:.*}", behind)
    server = TestServer(application_behind)
    await server.start_server()
    address = str(server.make_url("")).rstrip("/")
    if not upstream_is_there:
        await server.close()
    port = free_ports(1)[0]
    url = f"http://127.0.0.1:{port}"
    made = TestServer(application(Front(url, address, "api-id", "leaseway-files", "us-east-1", KEY)), port=port)
    await made.start_server()
    async with ClientSession() as session:
        yield Caller(session, url, upstream)
    await made.close()
    await server.close()


def told(story: Callable[[Caller], Awaitable[None]], **how: bool) -> None:
    async def run() -> None:
        async with standing(**how) as caller:
            await story(caller)

    asyncio.run(run())


@pytest.mark.parametrize(
    "path", ["/datasets/a%20b?x=1&y=%2F", "/catalog.ttl", "/health", "/openapi.json", "/internal/jobs"]
)
def test_the_apps_routes_go_to_the_api_as_they_came(path: str) -> None:
    async def story(caller: Caller) -> None:
        status, _, body = await caller.ask("POST", path, data=b"{}", headers={"Authorization": "Bearer x"})

        assert (status, body) == (200, b"hello")
        method, target, headers, sent = caller.upstream.last
        assert (method, target, sent) == ("POST", f"/_aws/execute-api/api-id/api{path}", b"{}")
        assert headers["Authorization"] == "Bearer x"
        assert headers["X-Forwarded-For"] == "127.0.0.1"
        assert headers["X-Forwarded-Proto"] == "http"
        assert headers["X-Forwarded-Host"] == caller.url.removeprefix("http://")

    told(story)


@pytest.mark.parametrize("key", ["sources/trees/1.csv", "sources", "%73ources/trees/1.csv"])
@pytest.mark.parametrize("method", ["GET", "PUT", "OPTIONS"])
def test_a_sources_file_is_passed_to_nobody_not_even_with_our_own_signature(key: str, method: str) -> None:
    async def story(caller: Caller) -> None:
        operation = "put_object" if method == "PUT" else "get_object"
        signed = caller.presign(operation, Key=key)
        status, _, _ = await caller.ask(method, signed.replace("%2573", "%73"))

        assert status == 404
        assert caller.upstream.asked == []

    told(story)


def test_headers_that_localstack_listens_to_stay_outside() -> None:
    async def story(caller: Caller) -> None:
        await caller.ask(
            "GET", "/health", headers={"X-Amz-Target": "AWSLambda", "X-LocalStack-Data": "1", "Accept": "a/b"}
        )

        headers = {name.lower() for name in caller.upstream.last[2]}
        assert not [name for name in headers if name.startswith(("x-amz", "x-localstack"))]
        assert caller.upstream.last[2]["Accept"] == "a/b"

    told(story)


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/_localstack/health",
        "/_aws/execute-api/api-id/api/health",
        "/2015-03-31/functions/Worker/invocations",
        "/leaseway-deploy/template.json",
        "/datasets/../_localstack/health",
        "/datasets/%2e%2e/%2e%2e/_localstack/health",
        "/datasets/..%2f..%2f_localstack/health",
        "//datasets",
        "/datasetsx",
        "/datasets/a%0d%0aX-Injected:%201/../x",
    ],
)
def test_nothing_else_is_passed(path: str) -> None:
    async def story(caller: Caller) -> None:
        status, headers, body = await caller.ask("GET", path)

        assert status == 404
        assert headers["content-type"].startswith("application/problem+json")
        assert json.loads(body)["code"] == "not_found"
        assert caller.upstream.asked == []

    told(story)


def test_what_api_gateway_renamed_has_its_name_again_and_a_head_its_length() -> None:
    async def story(caller: Caller) -> None:
        renamed = {"x-amzn-Remapped-WWW-Authenticate": "Bearer", "x-amzn-Remapped-Content-Length": "4711"}
        caller.upstream.answer = web.Response(status=401, headers=renamed | {"ETag": '"x"', "x-localstack": "true"})
        status, headers, body = await caller.ask("HEAD", "/datasets/a/files/a.csv")

        assert (status, body) == (401, b"")
        assert headers["www-authenticate"] == "Bearer"
        assert headers["content-length"] == "4711"
        assert headers["etag"] == '"x"'
        assert not [name for name in headers if name.startswith(("x-amzn-remapped", "x-localstack"))]

        caller.upstream.answer = web.Response(headers={"Content-Length": "0"})
        assert "content-length" not in (await caller.ask("HEAD", "/catalog"))[1]

    told(story)


def test_a_body_has_ten_megabytes_at_most_told_or_not() -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b"x" * 1_000_000

    async def story(caller: Caller) -> None:
        for body in (b"x" * 10_000_001, pieces()):
            status, _, said = await caller.ask("PUT", "/datasets/a/definition", data=body)
            assert (status, json.loads(said)["code"]) == (413, "payload_too_large")
        assert caller.upstream.asked == []
        assert (await caller.ask("PUT", "/datasets/a/definition", data=b"x" * 10_000_000))[0] == 200

    told(story)


def test_a_presigned_file_is_fetched_with_what_was_signed_and_never_with_our_key() -> None:
    async def story(caller: Caller) -> None:
        caller.upstream.answer = web.Response(status=206, body=b"1;2", headers={"Content-Range": "bytes 0-2/9"})
        address = caller.presign("get_object", ResponseContentDisposition='attachment; filename="a.csv"')
        status, headers, body = await caller.ask("GET", address, headers={"Range": "bytes=0-2"})

        assert (status, headers["content-range"], body) == (206, "bytes 0-2/9", b"1;2")
        method, target, passed, _ = caller.upstream.last
        assert method == "GET"
        assert target.startswith("/leaseway-files/exports/a%20b%2Bc.csv?")
        assert "response-content-disposition=attachment%3B%20filename%3D%22a.csv%22" in target
        assert passed["Range"] == "bytes=0-2"
        assert "LWKEY" not in target
        assert "Credential=test" in target

    told(story)


def test_an_address_that_isnt_signed_for_this_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(caller: Caller) -> None:
        get, put = caller.presign("get_object"), caller.presign("put_object")
        bad = {
            "unsigned": ("GET", get.split("?")[0]),
            "another object": ("GET", get.replace("exports/", "secrets/")),
            "another bucket's": ("GET", caller.presign("get_object", key=Credentials("test", "test"))),
            "our id, another secret": ("GET", caller.presign("get_object", key=Credentials(KEY.access_key, "test"))),
            "for longer": ("GET", get.replace("X-Amz-Expires=300", "X-Amz-Expires=301")),
            "with more": ("GET", get + "&versionId=1"),
            "HEAD of a GET": ("HEAD", get),
            "PUT of a GET": ("PUT", get),
            "GET of a PUT": ("GET", put),
            "DELETE": ("DELETE", get),
            "nonsense": ("GET", get.replace("X-Amz-Date=", "X-Amz-Date=x")),
        }
        for why, (method, address) in bad.items():
            assert (await caller.ask(method, address))[0] == 403, why
        assert caller.upstream.asked == []

        late = front.datetime.now(front.UTC) + timedelta(seconds=301)
        monkeypatch.setattr(front, "datetime", type("Late", (front.datetime,), {"now": classmethod(lambda *_: late)}))
        status, _, body = await caller.ask("GET", get)
        assert (status, "expired" in json.loads(body)["detail"]) == (403, True)

    told(story)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("X-Amz-Expires", "999999999999"),
        ("X-Amz-Expires", "1" + 30 * "0"),
        ("X-Amz-Date", "00010101T000000Z"),
        ("X-Amz-Date", "99991231T235959Z"),
        ("X-Amz-Signature", "%C3%A9"),
        ("X-Amz-Signature", "%ED%A0%80"),
    ],
)
def test_no_part_of_an_address_makes_it_a_500(field: str, value: str) -> None:
    async def story(caller: Caller) -> None:
        address = re.sub(f"{field}=[^&]*", f"{field}={value}", caller.presign("get_object"))
        status, headers, _ = await caller.ask("GET", address)

        assert (status, headers["content-type"]) == (403, "application/problem+json; charset=utf-8")
        assert not caller.upstream.asked

    told(story)


def test_a_file_is_given_to_who_sends_a_body_with_the_wish() -> None:
    async def story(caller: Caller) -> None:
        status, _, body = await caller.ask("GET", caller.presign("get_object"), data=b"abc", timeout=TWO_SECONDS)

        assert (status, body, caller.upstream.last[3]) == (200, b"hello", b"")

    told(story)


@pytest.mark.parametrize("encoding", ["gzip", "aws-chunked"])
@pytest.mark.parametrize("body", [gzip.compress(b"{}", mtime=0), b"no gzip at all"])
def test_a_compressed_body_is_refused_and_read_by_nobody(
    body: bytes, encoding: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def story(caller: Caller) -> None:
        for address in ("/datasets/a", caller.presign("put_object")):
            for packed in ([encoding], ["identity", encoding]):
                headers = CIMultiDict(("Content-Encoding", one) for one in packed)
                status, _, told = await caller.ask("PUT", address, data=body, headers=headers)
                assert (status, json.loads(told)["code"]) == (415, "unsupported_media_type")
        assert not caller.upstream.asked

    told(story)
    assert not caplog.records


def test_who_accepts_nothing_in_particular_accepts_everything() -> None:
    async def story(caller: Caller) -> None:
        async with caller.session.get(caller.url + "/catalog", skip_auto_headers=["Accept"]):
            assert caller.upstream.last[2]["Accept"] == "*/*"

    told(story)


def test_an_upload_is_streamed_in_and_cant_be_turned_into_a_copy() -> None:
    async def story(caller: Caller) -> None:
        address = caller.presign("put_object", ContentType="text/csv")
        body = b"y" * 12_000_000
        copy = {"x-amz-copy-source": "/leaseway-files/exports/another.csv"}
        status, _, _ = await caller.ask("PUT", address, data=body, headers={"Content-Type": "text/csv"} | copy)

        assert status == 200
        method, _, headers, sent = caller.upstream.last
        assert (method, len(sent), headers["Content-Type"]) == ("PUT", len(body), "text/csv")
        assert headers["Content-Length"] == str(len(body))
        assert "x-amz-copy-source" not in {name.lower() for name in headers}
        assert (await caller.ask("PUT", address, data=body, headers={"Content-Type": "text/html"}))[0] == 403

    told(story)


def test_an_upload_has_exactly_the_bytes_that_its_address_was_made_for() -> None:
    async def story(caller: Caller) -> None:
        address = caller.presign("put_object", Key="uploads/1", ContentLength=12)

        status, _, _ = await caller.ask("PUT", address, data=b"id,name\n1,x\n")
        assert status == 200
        method, _, headers, sent = caller.upstream.last
        assert (method, headers["Content-Length"], sent) == ("PUT", "12", b"id,name\n1,x\n")
        for another in (b"", b"id,name\n1,x", b"id,name\n1,xy\n"):
            assert (await caller.ask("PUT", address, data=another))[0] == 403
        assert len(caller.upstream.asked) == 1

    told(story)


def test_the_checksum_of_an_upload_is_the_one_that_was_signed() -> None:
    async def story(caller: Caller) -> None:
        address = caller.presign("put_object", Key="uploads/1", ContentLength=1, ChecksumSHA256="signed=")

        signed, other = {"x-amz-checksum-sha256": "signed="}, {"x-amz-checksum-sha256": "other="}
        both = CIMultiDict([*signed.items(), *other.items()])
        for headers in ({}, other, both, signed | {"Connection": "x-amz-checksum-sha256"}):
            assert (await caller.ask("PUT", address, data=b"x", headers=headers))[0] == 403
        assert not caller.upstream.asked
        assert (await caller.ask("PUT", address, data=b"x", headers=signed))[0] == 200
        assert signed.items() <= {name.lower(): value for name, value in caller.upstream.last[2].items()}.items()

    told(story)


def test_the_stack_being_away_is_said_and_not_taken_for_an_answer() -> None:
    async def away(caller: Caller) -> None:
        status, headers, body = await caller.ask("GET", "/health")
        assert (status, headers["retry-after"], json.loads(body)["code"]) == (503, "5", "unavailable")

    async def not_deployed(caller: Caller) -> None:
        caller.upstream.answer = web.json_response({"message": "The API id doesn't correspond to"}, status=404)
        assert (await caller.ask("GET", "/health"))[0] == 503
        caller.upstream.answer = web.Response(
            text="{}", status=404, content_type="application/problem+json"
        )  # the app's own
        assert (await caller.ask("GET", "/datasets/nothing"))[0] == 404

    told(away, upstream_is_there=False)
    told(not_deployed)


def test_half_an_answer_never_passes_for_a_whole_one() -> None:
    async def story(caller: Caller) -> None:
        async def breaks(request: web.Request) -> web.StreamResponse:
            answer = web.StreamResponse(headers={"Content-Length": "1000000"})
            await answer.prepare(request)
            await answer.write(b"x" * 10)
            assert request.transport
            request.transport.close()
            return answer

        caller.upstream.handle = breaks  # type: ignore[method-assign]
        with pytest.raises(ClientPayloadError):
            await caller.ask("GET", caller.presign("get_object"))

    told(story)
