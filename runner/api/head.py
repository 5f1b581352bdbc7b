"""Answers HEAD wherever GET is answered: the GET is asked, and nothing but its headers is sent.

Routes with a HEAD of their own keep it. ``StrictRoute`` never begins what a streamed answer would send.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.routing import Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

ASKED: Final = "foliobox.head"  # in the scope of a GET of which only the headers are wanted


class Head:
    """Wraps the routes, inside the gate: keys, limits and the log see the request as it came."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or serves(scope, "HEAD"):
            await self._app(scope, receive, send)
            return

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.body":
                if message.get("more_body", False):
                    return
                message = {"type": "http.response.body", "body": b""}
            await send(message)

        asked = {**scope, "method": "GET", ASKED: True}
        try:
            await self._app(asked, receive, send_headers)
        finally:
            if "route" in asked:  # for the log
                scope["route"] = asked["route"]


def serves(scope: Scope, method: str) -> bool:
    """Whether a route serves this address by this very method."""
    wanted = {**scope, "method": method}
    return any(route.matches(wanted)[0] is Match.FULL for route in scope["app"].routes)


def headers_of(response: Response) -> Response:
    """A streamed answer whose stream is dropped unread; others as they are."""
    if not isinstance(response, StreamingResponse):
        return response
    bare = Response(status_code=response.status_code, background=response.background)
    bare.raw_headers = response.raw_headers
    return bare
