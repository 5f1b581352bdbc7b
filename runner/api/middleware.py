"""What happens to every request: an id, the body limit, one log line, and no sniffing of content types."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import MutableMapping
from typing import Any

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
        request_id = _request_id(scope)
        scope["foliobox.request_id"] = request_id
        logs.bind(request_id=request_id)
        began = time.perf_counter()
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [
                    *message.get("headers", []),
                    (b"x-request-id", request_id.encode()),
                    (b"x-content-type-options", b"nosniff"),
                ]
            await send(message)

        limited = receive
        if not (scope["method"] == "PUT" and _UPLOAD.match(scope["path"])):
            limited = self._limited(scope, receive)
        try:
            await self._app(scope, limited, sending)
        finally:
            took = round((time.perf_counter() - began) * 1000, 2)
            log.info("request", method=scope["method"], path=scope["path"][:200], status=status, ms=took)
            logs.unbind_all()

    def _limited(self, scope: MutableMapping[str, Any], receive: Receive) -> Receive:
        seen = 0

        async def receiving() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self._limit:
                scope["foliobox.too_large"] = self._limit
                raise TooLarge(f"the body is larger than {self._limit} bytes", limit=self._limit)
            return message

        return receiving


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _GIVEN_ID.fullmatch(value):
            return str(value.decode())
    return secrets.token_hex(8)
