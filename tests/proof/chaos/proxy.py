"""What stands between a function and everything it speaks to over HTTP, and can fail in the ways that networks do."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web
from yarl import URL

DROPPED = {
    "connection",
    "keep-alive",
    "transfer-encoding",
    "host",
    "content-length",
    "te",
    "trailer",
    "upgrade",
    "expect",
}
PATIENCE = 20
"""Seconds for which a silent server keeps its callers, and after which they are hung up on."""

Names = Callable[[web.Request], str]
"""What a request asks for, as the moods name it."""


@dataclass
class Held:
    """A request, or the reply to it, that goes on once it is let go."""

    port: int
    """Of whoever asked."""
    body: bytes
    over: Future[bool] = field(default_factory=Future)

    def let_go(self, *, arrives: bool = True) -> None:
        """It goes on, or is lost."""
        self.over.set_result(arrives)


@dataclass
class Trap:
    """Holds what is asked for, before it is passed on or before its reply is."""

    name: str
    replies: bool
    held: SimpleQueue[Held] = field(default_factory=SimpleQueue)


@dataclass
class Proxy:
    """One server. ``moods`` says how it treats a kind of request: away, refusing, losing replies, silent."""

    upstream: str
    names: Names
    moods: dict[str, str] = field(default_factory=dict)
    suffered: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(kind of request, mood) to how often."""
    passed: Counter[str] = field(default_factory=Counter)
    traps: list[Trap] = field(default_factory=list)
    url: str = ""
    session: ClientSession | None = None

    @contextmanager
    def being(self, mood: str, *names: str) -> Iterator[None]:
        """For a while."""
        for name in names:
            self.moods[name] = mood
        try:
            yield
        finally:
            for name in names:
                self.moods.pop(name, None)

    @contextmanager
    def trapping(self, name: str, *, replies: bool = False) -> Iterator[SimpleQueue[Held]]:
        """Whoever asks for that is held, and in the queue; who is taken from it is to be let go by whoever took him."""
        trap = Trap(name, replies)
        self.traps.append(trap)
        try:
            yield trap.held
        finally:
            self.traps.remove(trap)
            with suppress(Empty):
                while True:
                    trap.held.get_nowait().let_go()

    async def _held(self, name: str, request: web.Request, body: bytes, *, replies: bool) -> bool:
        """Whether it goes on, after it was held by whoever wanted to."""
        for trap in [trap for trap in self.traps if (trap.name, trap.replies) == (name, replies)]:
            if request.transport is not None and trap in self.traps:
                held = Held(request.transport.get_extra_info("peername")[1], body)
                trap.held.put(held)
                done, _ = await asyncio.wait([asyncio.wrap_future(held.over)], timeout=PATIENCE * 3)
                if not all(future.result() for future in done):
                    return False
        return True

    async def handle(self, request: web.Request) -> web.StreamResponse:
        name = self.names(request)
        mood = self.moods.get(name)
        body = await request.read()
        self.passed[name] += 1
        if mood:
            self.suffered[name, mood] += 1
        if mood == "away":
            return self._hang_up(request)
        if mood == "refusing":
            return web.Response(status=503)
        if mood == "silent":
            for _ in range(PATIENCE * 10):
                if self.moods.get(name) != "silent" or request.transport is None or request.transport.is_closing():
                    break
                await asyncio.sleep(0.1)
            return self._hang_up(request)
        if not await self._held(name, request, body, replies=False):
            return self._hang_up(request)
        assert self.session
        headers = [(k, v) for k, v in request.headers.items() if k.lower() not in DROPPED]
        try:
            async with self.session.request(
                request.method,
                URL(self.upstream + request.raw_path, encoded=True),
                headers=headers,
                data=body or None,
                allow_redirects=False,
            ) as answer:
                content = await answer.read()
        except ClientError:
            return self._hang_up(request)
        if mood == "losing replies":
            return self._hang_up(request)
        await self._held(name, request, body, replies=True)
        kept = [(k, v) for k, v in answer.headers.items() if k.lower() not in DROPPED]
        if request.method == "HEAD":
            kept += [(k, v) for k, v in answer.headers.items() if k.lower() == "content-length"]
        return web.Response(status=answer.status, headers=kept, body=content or None)

    def _hang_up(self, request: web.Request) -> web.StreamResponse:
        if request.transport is not None:
            request.transport.abort()
        return web.Response()


def of_aws(request: web.Request) -> str:
    """SQS speaks JSON to one address and names the act in a header; everything else is S3's: put, head, other."""
    if request.headers.get("X-Amz-Target", "").startswith("AmazonSQS"):
        return "sqs"
    return f"s3 {request.method.lower()}" if request.method in ("PUT", "HEAD") else "s3"


def of_triples(request: web.Request) -> str:
    return "update" if request.path == "/update" else "query"


def of_exports(request: web.Request) -> str:
    return "exports"


@contextmanager
def proxied(**upstreams: tuple[str, Names]) -> Iterator[dict[str, Proxy]]:
    """Proxies on ports of their own, in one thread."""
    proxies = {name: Proxy(*upstream) for name, upstream in upstreams.items()}
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="proxies", daemon=True)
    thread.start()

    def do(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop).result(30)

    runners: list[web.AppRunner] = []

    async def open_all() -> None:
        for proxy in proxies.values():
            proxy.session = ClientSession(
                auto_decompress=False,
                cookie_jar=DummyCookieJar(),
                connector=TCPConnector(limit=100, keepalive_timeout=2),
                timeout=ClientTimeout(total=60),
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent", "Content-Type"),
            )
            app = web.Application(client_max_size=0)
            app.router.add_route("*", r"/{path:[\s\S]*}", proxy.handle)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=False, shutdown_timeout=0.5)
            await runner.setup()
            runners.append(runner)
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            proxy.url = f"http://127.0.0.1:{runner.addresses[0][1]}"

    async def close_all() -> None:
        for runner in runners:
            await runner.cleanup()
        for proxy in proxies.values():
            if proxy.session:
                await proxy.session.close()

    do(open_all())
    try:
        yield proxies
    finally:
        do(close_all())
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
