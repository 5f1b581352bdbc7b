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

from runner.api import auth
from runner.api.config import ApiConfig
from runner.api.errors import answer, problem, unexpected
from runner.errors import TooLarge, Unauthorized
from runner.telemetry import logs

log = logs.logger("http")
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_UPLOAD = re.compile(r"/v1/conversations/[^/]+/files/")
_CLIENT_LEFT = 499  # in the log only


class Stalled(Exception):
    """The body made no progress."""


class Gate:
    """Wraps the application. Uploads of files have their own limit in the store, so they pass uncounted."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app, self._limit = app, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        config: ApiConfig = scope["app"].state.api_config
        upload = scope["method"] == "PUT" and _UPLOAD.match(scope["path"])
        exchange = _Exchange(scope, receive, send, None if upload else self._limit, config.body_timeout_s)
        logs.bind(request_id=exchange.request_id)
        began = time.perf_counter()
        try:
            await self._serve(scope, exchange, config)
        finally:
            took = round((time.perf_counter() - began) * 1000, 2)
            status = exchange.status or (_CLIENT_LEFT if exchange.left else 0)
            log.info("request", method=scope["method"], path=scope["path"][:200], status=status, ms=took)
            logs.unbind_all()

    async def _serve(self, scope: Scope, exchange: _Exchange, config: ApiConfig) -> None:
        """The key is checked before any of the body is read. Faults are answered here: what Starlette would
        answer outside has neither the id nor the headers.
        """
        request = Request(scope)
        response: Response | None = None
        try:
            if not auth.is_open(scope["path"]):
                scope[auth.TENANT_KEY] = auth.authenticate(config, request.headers)
            await self._app(scope, exchange.receive, exchange.send)
        except Unauthorized as error:
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

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int | None, timeout_s: float) -> None:
        self._scope, self._receive, self._send, self._limit, self._timeout_s = scope, receive, send, limit, timeout_s
        self.status = 0
        self.left = False
        self.verdict: Response | None = None  # an answer that replaces the application's
        self.request_id = secrets.token_hex(8)
        self._seen = 0
        self._unread = False
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _GIVEN_ID.fullmatch(value):
                self.request_id = value.decode()
            elif name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
                self._unread = True
        scope["foliobox.request_id"] = self.request_id

    async def receive(self) -> Message:
        """The next piece of the body. Raises TooLarge when there is more than may be, Stalled when none comes."""
        message = await self._next()
        if message["type"] == "http.disconnect":
            self.left = self.left or (self._unread and not self.status)
            return message
        self._seen += len(message.get("body", b""))
        self._unread = self._unread and bool(message.get("more_body", False))
        if self._limit is not None and self._seen > self._limit:
            self._unread = True
            detail = f"the body is larger than {self._limit} bytes"
            self._decide(413, TooLarge.code, TooLarge.title, detail, limit=self._limit)
            raise TooLarge(detail, limit=self._limit)
        return message

    async def _next(self) -> Message:
        if not self._unread or self.status:
            return await self._receive()
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._receive()
        except TimeoutError:
            if self.status:  # an answer that needs no body is on its way
                return await self._receive()
        self._decide(408, "timeout", "Request timeout", f"nothing of the body came for {self._timeout_s:g} s")
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
