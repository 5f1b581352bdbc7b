"""What happens to every request: an id, the body limit, one log line, and no sniffing of content types."""

from __future__ import annotations

import re
import secrets
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runner.errors import TooLarge
from runner.telemetry import logs

log = logs.logger("http")
_GIVEN_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_UPLOAD = re.compile(r"/v1/conversations/[^/]+/files/")


class Gate:
    """Wraps the application. Uploads of files have their own limit in the store, so they pass uncounted."""

    def __init__(self, app: ASGIApp, max_body_bytes: int) -> None:
        self._app, self._limit = app, max_body_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        upload = scope["method"] == "PUT" and _UPLOAD.match(scope["path"])
        exchange = _Exchange(scope, receive, send, None if upload else self._limit)
        logs.bind(request_id=exchange.request_id)
        began = time.perf_counter()
        try:
            await self._app(scope, exchange.receive, exchange.send)
        finally:
            took = round((time.perf_counter() - began) * 1000, 2)
            log.info("request", method=scope["method"], path=scope["path"][:200], status=exchange.status, ms=took)
            logs.unbind_all()


class _Exchange:
    """One request and its response on their way through."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, limit: int | None) -> None:
        self._scope, self._receive, self._send, self._limit = scope, receive, send, limit
        self.status = 0
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
        """The next piece of the body. Raises TooLarge when there is more than may be."""
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        self._unread = self._unread and bool(message.get("more_body", False))
        if self._limit is not None and self._seen > self._limit:
            self._scope["foliobox.too_large"] = self._limit
            self._unread = True
            raise TooLarge(f"the body is larger than {self._limit} bytes", limit=self._limit)
        return message

    async def send(self, message: Message) -> None:
        """The response. When it comes before the body has ended the connection is closed, else a client
        that never stops sending would be read for ever.
        """
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", []), (b"x-request-id", self.request_id.encode())]
            headers.append((b"x-content-type-options", b"nosniff"))
            if self._unread:
                headers.append((b"connection", b"close"))
            message["headers"] = headers
        await self._send(message)
