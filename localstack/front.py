"""The front port: the one address of the local stack that people, browsers and a proxy may reach.

It passes the app's routes to API Gateway, and presigned GETs of files and presigned PUTs of uploads to S3; nothing
else, for LocalStack's own port runs code for whoever reaches it. It verifies the presigned signature itself, with a key
of this stack's own: LocalStack's secret is `test` everywhere.
"""

import hmac
import os
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from urllib.parse import parse_qs, unquote, urlsplit

from aiohttp import ClientConnectorError, ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from botocore.auth import S3SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from multidict import CIMultiDict, CIMultiDictProxy
from yarl import URL

ROUTES = frozenset(
    {
        "datasets",
        "catalog",
        "publications",
        "withdrawals",
        "loads",
        "refreshes",
        "schedules",
        "internal",
        "health",
        "problems",
        "docs",
        "openapi",
    }
)
"""First parts of the app's addresses, without a suffix such as .ttl."""

ROUTE_BODY_BYTES = 10_000_000  # API Gateway's own limit
BLOCK = 256 * 1024
TIME_OUT = ClientTimeout(total=None, connect=2, sock_read=120)
HOP_BY_HOP = frozenset(
    {
        "connection",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
INTERNAL = ("x-amz", "x-localstack", "x-moto")
"""What LocalStack itself listens to; no caller has a say in it."""

SIGNATURE = frozenset(
    {
        "X-Amz-Algorithm",
        "X-Amz-Credential",
        "X-Amz-Date",
        "X-Amz-Expires",
        "X-Amz-SignedHeaders",
        "X-Amz-Security-Token",
    }
)
REMAPPED = "x-amzn-remapped-"
REVEALING = frozenset({"server", "date", "x-localstack"})


class Refused(Exception):
    """A request that isn't passed on, as a problem document."""

    def __init__(self, status: HTTPStatus, code: str, detail: str) -> None:
        super().__init__(detail)
        self.status, self.code, self.detail = status, code, detail


@dataclass(frozen=True)
class Front:
    """Where things are; ``url`` is what everybody outside calls it, a proxy's address if there is one."""

    url: str
    upstream: str
    api: str
    bucket: str
    region: str
    key: Credentials

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Pass one request on, or refuse it."""
        try:
            return await self._pass(request)
        except Refused as refused:
            return self._problem(refused)

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        # LocalStack unpacks some bodies, and reads in a way of its own what is called aws-chunked: none goes on packed.
        encodings = {encoding.lower() for encoding in request.headers.getall("Content-Encoding", [])}
        if request.can_read_body and encodings - {"identity"}:
            raise Refused(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", "Send the body without Content-Encoding."
            )
        path = request.raw_path.split("?", 1)[0]
        parts = unquote(path).split("/")
        if not path.startswith("/") or any(part in {"", ".", ".."} for part in parts[1:-1]) or parts[-1] in {".", ".."}:
            raise Refused(HTTPStatus.NOT_FOUND, "not_found", "There is nothing at this address.")
        if parts[1].split(".", 1)[0] in ROUTES:
            return await self._to_app(request)
        if parts[1] == self.bucket and parts[2:3] != ["sources"]:  # files of sources are nobody's but the functions'
            return await self._to_files(request)
        raise Refused(HTTPStatus.NOT_FOUND, "not_found", "There is nothing at this address.")

    async def _to_app(self, request: web.Request) -> web.StreamResponse:
        headers = _passed(request.headers, lambda name: name not in HOP_BY_HOP and not name.startswith(INTERNAL))
        peer = request.remote or "unknown"
        headers["X-Forwarded-For"] = ", ".join([*request.headers.getall("X-Forwarded-For", []), peer])
        headers.setdefault("Accept", "*/*")  # without one, LocalStack's gateway asks for JSON in the caller's name
        headers.setdefault("X-Forwarded-Host", request.host)
        headers.setdefault("X-Forwarded-Proto", urlsplit(self.url).scheme)
        body = await _limited(request)
        headers.popall("Content-Length", None)
        return await self._forward(request, f"/_aws/execute-api/{self.api}/api{request.raw_path}", headers, body)

    async def _to_files(self, request: web.Request) -> web.StreamResponse:
        if request.method == "OPTIONS":  # the preflight of an upload: the bucket's CORS rules answer
            headers = _passed(request.headers, lambda name: name not in HOP_BY_HOP and not name.startswith(INTERNAL))
            return await self._forward(request, request.raw_path, headers, None)
        if request.method not in {"GET", "PUT"}:
            raise Refused(HTTPStatus.FORBIDDEN, "forbidden", "A presigned address is good for its own method only.")
        # What `Connection` names goes no further: a signed header among them counts as missing, or S3 would miss it.
        came = _passed(request.headers, lambda name: True)
        signed = verify(self.key, self.url, request.method, request.raw_path, came, datetime.now(UTC))
        if request.method == "PUT" and request.content_length is None:
            raise Refused(HTTPStatus.LENGTH_REQUIRED, "length_required", "An upload tells its Content-Length.")
        # As at S3, a header `x-amz-…` counts only if it was signed: it could turn an upload into a copy.
        headers = _passed(
            request.headers,
            lambda name: (
                name in signed.headers - {"host"}
                or (name not in HOP_BY_HOP and name != "authorization" and not name.startswith(INTERNAL))
            ),
        )
        # LocalStack is asked as its own account: an anonymous GET may not choose its response's headers.
        own = AWSRequest(method=request.method, url=f"{self.upstream}{signed.target}")
        S3SigV4QueryAuth(Credentials("test", "test"), "s3", self.region, expires=60).add_auth(own)
        body = _stream(request) if request.method == "PUT" else None
        if body is None:
            headers.popall("Content-Length", None)  # a body that isn't passed on would be waited for
        return await self._forward(request, str(own.url).removeprefix(self.upstream), headers, body)

    async def _forward(
        self,
        request: web.Request,
        target: str,
        headers: CIMultiDict[str],
        body: bytes | AsyncIterator[bytes] | None,
    ) -> web.StreamResponse:
        response: web.StreamResponse | None = None
        try:
            async with request.app[SESSION].request(
                request.method,
                URL(self.upstream + target, encoded=True),
                headers=headers,
                data=body,
                allow_redirects=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            ) as answer:
                if answer.status == HTTPStatus.NOT_FOUND and "/_aws/" in target and not _of_the_app(answer.headers):
                    raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "The app isn't deployed yet.")
                response = web.StreamResponse(status=answer.status, headers=_returned(request.method, answer.headers))
                await response.prepare(request)
                if request.method != "HEAD":
                    async for block in answer.content.iter_chunked(BLOCK):
                        await response.write(block)
                await response.write_eof()
                return response
        except (ClientError, TimeoutError) as error:
            if response is not None:
                raise  # begun, or the caller went away: the connection is cut, so that no part passes for the whole
            if isinstance(error, ClientConnectorError):
                raise Refused(
                    HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "The stack doesn't answer; `make up` starts it."
                ) from error
            raise Refused(HTTPStatus.BAD_GATEWAY, "bad_gateway", "The local stack gave no proper answer.") from error

    def _problem(self, refused: Refused) -> web.Response:
        document = {
            "type": f"{self.url}/problems/{refused.code}",
            "title": refused.status.phrase,
            "status": refused.status.value,
            "code": refused.code,
            "detail": refused.detail,
        }
        headers = {"Retry-After": "5"} if refused.status == HTTPStatus.SERVICE_UNAVAILABLE else {}
        return web.json_response(
            document, status=refused.status, headers=headers, content_type="application/problem+json"
        )


@dataclass(frozen=True)
class Signed:
    """What a signature stands for: the target without it, and the headers it covers."""

    target: str
    headers: frozenset[str]


def verify(key: Credentials, base: str, method: str, target: str, headers: CIMultiDict[str], now: datetime) -> Signed:
    """Check a presigned SigV4 address (its query form) with the stack's own key, or refuse it."""
    path, _, query = target.partition("?")
    fields = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}
    try:
        signature = fields["X-Amz-Signature"]
        scope = fields["X-Amz-Credential"].split("/")
        stamp = fields["X-Amz-Date"]
        begin = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        earliest, end = begin - timedelta(minutes=15), begin + timedelta(seconds=int(fields["X-Amz-Expires"]))
        names = fields["X-Amz-SignedHeaders"].split(";")
        access_key, region = scope[0], scope[2]
    except (KeyError, IndexError, ValueError, OverflowError) as error:  # dates have an end
        raise Refused(HTTPStatus.FORBIDDEN, "forbidden", "A file's address is signed; this one isn't.") from error
    if not earliest <= now <= end:
        raise Refused(HTTPStatus.FORBIDDEN, "forbidden", "This address has expired; ask for the file again.")
    unsigned = "&".join(part for part in query.split("&") if not part.startswith("X-Amz-Signature="))
    signed = AWSRequest(method=method, url=f"{base}{path}?{unsigned}")
    for name in names:
        # The host is the one that addresses are signed for, whatever a proxy made of it. Of another header every value
        # counts, as at S3: who is asked next may read another one than the first.
        signed.headers[name] = urlsplit(base).netloc if name == "host" else ",".join(headers.getall(name, []))
    signed.context["timestamp"] = stamp
    signer = S3SigV4QueryAuth(key, "s3", region)
    expected = signer.signature(signer.string_to_sign(signed, signer.canonical_request(signed)), signed)
    if access_key != key.access_key or not hmac.compare_digest(expected.encode(), signature.encode()):
        raise Refused(HTTPStatus.FORBIDDEN, "forbidden", "The address's signature doesn't fit; ask for the file again.")
    kept = "&".join(part for part in unsigned.split("&") if part.split("=", 1)[0] not in SIGNATURE)
    return Signed(f"{path}?{kept}" if kept else path, frozenset(names))


async def _limited(request: web.Request) -> bytes | None:
    if not request.can_read_body:
        return None
    too_large = Refused(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "payload_too_large", f"A body has at most {ROUTE_BODY_BYTES} bytes."
    )
    if (request.content_length or 0) > ROUTE_BODY_BYTES:
        raise too_large
    body = bytearray()
    async for block in request.content.iter_chunked(BLOCK):
        body += block
        if len(body) > ROUTE_BODY_BYTES:
            raise too_large
    return bytes(body)


async def _stream(request: web.Request) -> AsyncIterator[bytes]:
    async for block in request.content.iter_chunked(BLOCK):
        yield block


def _passed(headers: CIMultiDictProxy[str], wanted: Callable[[str], bool]) -> CIMultiDict[str]:
    named = {name.strip().lower() for value in headers.getall("Connection", []) for name in value.split(",")}
    return CIMultiDict((k, v) for k, v in headers.items() if wanted(k.lower()) and k.lower() not in named)


def _returned(method: str, headers: CIMultiDictProxy[str]) -> CIMultiDict[str]:
    """The answer's headers, with those that API Gateway renamed under their own names again."""
    renamed = {name.lower().removeprefix(REMAPPED) for name in headers if name.lower().startswith(REMAPPED)}
    answer: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        low = name.lower()
        own = low.removeprefix(REMAPPED)
        if own not in HOP_BY_HOP | REVEALING and (own != low or low not in renamed):
            answer.add(own.title() if own != low else name, value)
    if method == "HEAD" and "content-length" not in renamed:
        answer.popall("Content-Length", None)  # the gateway's, of the body it doesn't send; the app's is renamed
    return answer


def _of_the_app(headers: CIMultiDictProxy[str]) -> bool:
    """Whether a 404 is the app's, a problem document, or LocalStack's own."""
    return "problem+json" in headers.get("Content-Type", "")


SESSION = web.AppKey("session", ClientSession)


def application(front: Front) -> web.Application:
    """The server's application."""

    async def session(app: web.Application) -> AsyncIterator[None]:
        async with ClientSession(
            auto_decompress=False, cookie_jar=DummyCookieJar(), connector=TCPConnector(limit=200), timeout=TIME_OUT
        ) as made:
            app[SESSION] = made
            yield

    # Unpacking, aiohttp would stumble over a body that is refused, if it isn't what its Content-Encoding says.
    app = web.Application(client_max_size=0, handler_args={"auto_decompress": False})
    app.cleanup_ctx.append(session)
    app.router.add_route("*", r"/{path:[\s\S]*}", front.handle)
    return app


def main(names: Iterable[str] = ("URL", "UPSTREAM", "API", "BUCKET", "REGION")) -> None:
    """Serve on loopback until SIGTERM; the environment says where things are."""
    told = {name.lower(): os.environ[f"FRONT_{name}"] for name in names}
    key = Credentials(os.environ["FRONT_ACCESS_KEY_ID"], os.environ["FRONT_SECRET_ACCESS_KEY"])
    front = Front(**told, key=key)
    web.run_app(application(front), host="127.0.0.1", port=int(os.environ["FRONT_PORT"]), access_log=None, print=None)


if __name__ == "__main__":
    main()
