"""Sends the answer to a run: small ones at once, large ones as their files are read."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from runner.api.oneshot import translate
from runner.leases.nouns import Answer

_AT_ONCE: Final = 4 << 20


class Delivery(Response):
    """An answer on its way. Whatever becomes of it, it is closed then."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(media_type="application/json")
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A file that cannot be read before anything was sent is an error; later it cuts the connection."""
        try:
            size = translate.size_of(self._answer)
            headers = [(b"content-type", b"application/json"), (b"content-length", str(size).encode())]
            start = {"type": "http.response.start", "status": 200, "headers": headers}
            if size <= _AT_ONCE:
                body = b"".join([piece async for piece in translate.pieces(self._answer)])
                await send(start)
                await send({"type": "http.response.body", "body": body})
                return
            await send(start)
            async for piece in translate.pieces(self._answer):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._answer.close()
