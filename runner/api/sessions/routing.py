"""What the routes of the sessions surface share: the service, JSON bodies of any size, base64, callers who leave."""

from __future__ import annotations

import asyncio
import binascii
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

import pybase64
from fastapi import Request
from starlette.requests import ClientDisconnect

from runner.api import strict_json
from runner.api.auth import caller
from runner.api.v1.routing import Handler, StrictRoute
from runner.errors import CallerError, TooLarge
from runner.sessions.service import SessionService

_ASIDE: Final = 256 << 10  # what is longer is decoded in a thread
T = TypeVar("T")


class SessionRoute(StrictRoute):
    """A route whose body may be as long as the gate lets it."""

    def reading(self, handle: Handler) -> Handler:
        """``handle`` with a body that was checked and parsed."""
        if self.body_field is None:
            return handle

        async def handle_body(request: Request) -> Any:
            return await handle(await strict_json.checked(request, None, typed=False))

        return handle_body


def sessions(request: Request) -> SessionService:
    """The one service of this application."""
    found: SessionService = request.app.state.sessions
    return found


def largest(request: Request) -> int:
    """Bytes that one file may have: the key's limit or the surface's, whichever is lower."""
    own, most = caller(request).limits.upload_bytes, sessions(request).files.max_bytes
    return most if own is None else min(own, most)


async def decoded(text: str, max_bytes: int | None = None) -> bytes:
    """Standard base64, strictly. Raises TooLarge, by the length of the text already, and CallerError."""
    if max_bytes is not None and len(text) > -(-max_bytes // 3) * 4:
        raise TooLarge("file too large")
    content = await asyncio.to_thread(_decode, text) if len(text) > _ASIDE else _decode(text)
    if max_bytes is not None and len(content) > max_bytes:
        raise TooLarge("file too large")
    return content


def _decode(text: str) -> bytes:
    try:
        return pybase64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise CallerError("invalid base64") from None


async def while_there(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` gives, cancelled when the caller leaves. Raises ClientDisconnect then."""
    task = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((task, leaving), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        task.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
