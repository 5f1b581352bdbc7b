"""What happens to every request: an id, the key, the body's limits, one log line, and an answer to every fault."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runner.api import auth, shapes
from runner.api.config import BODY_MEMORY, BODY_TIMEOUT, MAX_BODY, MIN_BODY_RATE, ApiConfig
from runner.api.errors import answer, problem, unexpected
from runner.errors import FolioboxError, QueueFull, TooLarge
from runner.telemetry import logs, metrics

log = logs.logger("http")
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_UPLOADS = {
    "PUT": re.compile(r"/v1/conversations/[^/]+/files/"),
    "POST": re.compile(r"/v1/conversations/[^/]+/files"),
}
_CLIENT_LEFT = 499  # in the log only
_RETRY_MS = 1000


class Stalled(Exception):
    """The body made no progress."""


class Memory:
    """Bytes of bodies that are held in memory at this moment, of all requests together."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def take(self, size: int) -> bool:
        """Count ``size`` more bytes; False, and nothing counted, where that would be too many."""
        if self.held + size > self.limit:
            return False
        self.held += size
        return True

    def give(self, size: int) -> None:
        """``size`` bytes are held no more."""
        self.held -= size


class Gate:
    """Wraps the application. Uploads go to the store as they come and have their limits there, so they pass
    uncounted; every other body is held in memory, which is bounded for one body and for all together.
    """

    def __init__(self, app: ASGIApp, config: ApiConfig) -> None:
        self._app, self._limit = app, config.max_body_bytes
        largest = max(config.max_body_bytes, config.sessions_body_bytes, config.storage_body_bytes)
        self._memory = Memory(max(config.body_memory_bytes, largest))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        config: ApiConfig = scope["app"].state.api_config
        exchange = _Exchange(scope, receive, send, config, None if _is_upload(scope) else self._memory)
        logs.bind(request_id=exchange.request_id)
        began = time.perf_counter()
        try:
            await self._serve(scope, exchange, config)
        finally:
            exchange.end()
            took = round((time.perf_counter() - began) * 1000, 2)
            status = exchange.status or (_CLIENT_LEFT if exchange.left else 0)
            template = getattr(scope.get("route"), "path_format", metrics.NO_ROUTE)
            metrics.request(scope["method"], template, exchange.status, took / 1000)
            path = auth.without_secret(scope["path"])[:200]
            log.info("request", method=scope["method"], path=path, status=status, ms=took)
            logs.unbind_all()

    async def _serve(self, scope: Scope, exchange: _Exchange, config: ApiConfig) -> None:
        """The key is checked before any of the body is read. Faults are answered here: what Starlette would
        answer outside has neither the id nor the headers.
        """
        request = Request(scope)
        response: Response | None = None
        if (refused := exchange.refuse_length()) is not None:
            await exchange.reply(refused)
            return
        try:
            with auth.admitted(scope, config):
                await self._app(scope, exchange.receive, exchange.send)
        except FolioboxError as error:
            response = answer(request, error)
        except ClientDisconnect:
            log.info("the client left before the end of its body")
        except Exception as error:
            if exchange.verdict is None:
                response = unexpected(request, error)
        response = exchange.verdict or response
        if response is not None and not exchange.status:
            await exchange.reply(response)


class _Exchange:
    """One request and its response on their way through."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, config: ApiConfig, memory: Memory | None) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._config, self._memory = config, memory
        self._shape = shapes.of(scope["path"])
        self._limit = self._shape.body_limit(scope["path"], config) if self._shape else config.max_body_bytes
        self._began = time.monotonic()
        self._counted = 0
        self.status = 0
        self.left = False
        self.verdict: Response | None = None  # an answer that replaces the application's
        self.request_id = secrets.token_hex(8)
        self._seen = 0
        self._declared = 0
        self._length: str | None = None
        self._unread = False
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _GIVEN_ID.fullmatch(value):
                self.request_id = value.decode()
            elif name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
                self._unread = True
                self._length = value.decode("latin-1") if name == b"content-length" else self._length
                self._declared = int(value) if name == b"content-length" and value.isdigit() else 0
        scope["foliobox.request_id"] = self.request_id

    async def receive(self) -> Message:
        """The next piece of the body. Raises TooLarge or QueueFull when there is more than may be held, Stalled
        when it comes too slowly.
        """
        if self._memory is not None and not self.status:
            self._check(self._declared)
        message = await self._next()
        if message["type"] == "http.disconnect":
            self.left = self.left or (self._unread and not self.status)
            return message
        size = len(message.get("body", b""))
        self._seen += size
        self._unread = self._unread and bool(message.get("more_body", False))
        if self._memory is not None and not self.status:
            self._count(size, self._memory)
        return message

    def refuse_length(self) -> Response | None:
        """Where a surface judges the declared length before the key: its answer to one that is too much."""
        if self._shape is None or self._length is None:
            return None
        return self._shape.refuse_length(self._length, self._limit)

    def _check(self, size: int) -> None:
        limit = self._limit
        if size > limit:
            self._unread = True
            raise self._refused(TooLarge(f"the body is larger than {limit} bytes ({MAX_BODY})", limit=limit))

    def _count(self, size: int, memory: Memory) -> None:
        self._check(self._seen)
        if not memory.take(size):
            self._unread = True
            raise self._refused(
                QueueFull(
                    f"bodies of {memory.limit} bytes in all are being received ({BODY_MEMORY}); send it again later",
                    limit=memory.limit,
                    retry_after_ms=_RETRY_MS,
                )
            )
        self._counted += size

    def _refused(self, error: FolioboxError) -> FolioboxError:
        self.verdict = answer(Request(self._scope), error)
        return error

    def end(self) -> None:
        """The request is done: its body is held no more."""
        if self._memory is not None:
            self._memory.give(self._counted)
            self._counted = 0

    async def _next(self) -> Message:
        """A body may pause for the timeout, and must come at the lowest rate on the whole."""
        if not self._unread or self.status:
            return await self._receive()
        timeout, rate = self._config.body_timeout_s, self._config.min_body_rate
        behind = time.monotonic() - self._began - self._seen / rate
        try:
            async with asyncio.timeout(max(0.0, timeout - max(0.0, behind))):
                return await self._receive()
        except TimeoutError:
            if self.status:  # an answer that needs no body is on its way
                return await self._receive()
        self._decide(
            408,
            "timeout",
            "Request timeout",
            f"the body must not pause for {timeout:g} s ({BODY_TIMEOUT}), nor come more slowly than {rate} bytes/s "
            f"({MIN_BODY_RATE}) on the whole",
        )
        raise Stalled

    def _decide(self, status: int, code: str, title: str, detail: str, **fields: Any) -> None:
        """Fix the answer, whatever the application makes of the error that is raised next."""
        self.verdict = problem(Request(self._scope), status, code, title, detail, **fields)

    async def send(self, message: Message) -> None:
        """The application's response, unless another answer was decided on or nobody is there any more."""
        if self.status or (self.verdict is None and not self.left):
            await self._pass(message)

    async def reply(self, response: Response) -> None:
        """Send a response instead of the application's."""
        await response(self._scope, self._receive, self._pass)

    async def _pass(self, message: Message) -> None:
        """When the response comes before the body has ended the connection is closed, else a client that
        never stops sending would be read for ever.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", []), (b"x-request-id", self.request_id.encode())]
            headers.append((b"x-content-type-options", b"nosniff"))
            if self._unread:
                headers.append((b"connection", b"close"))
            message["headers"] = headers
        await self._send(message)


def _is_upload(scope: Scope) -> bool:
    pattern = _UPLOADS.get(scope["method"])
    if pattern is None:
        return False
    return bool(pattern.match(scope["path"]) if scope["method"] == "PUT" else pattern.fullmatch(scope["path"]))
