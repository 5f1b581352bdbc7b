"""Base64 of a stream, in pieces that are joined without padding between them."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import Final

import pybase64

_PIECE: Final = 3 << 16


async def encoded(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Pieces of whole groups of three bytes; the rest comes last."""
    rest = b""
    async for chunk in stream:
        rest += chunk
        if len(rest) >= _PIECE:
            whole = len(rest) - len(rest) % 3
            yield pybase64.b64encode(rest[:whole])
            rest = rest[whole:]
    if rest:
        yield pybase64.b64encode(rest)
