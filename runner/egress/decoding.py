"""Undoes the compression of a body as it comes, and never makes more of a chunk than is asked for."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, Protocol

from runner.errors import FetchFailed

_STEP: Final = 64 << 10
_WINDOW: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class _Inflating(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = ..., /) -> bytes: ...


def encoding_of(values: list[str]) -> str:
    """The one encoding of a body, empty for none. Raises FetchFailed for what was not asked for."""
    named = [part.strip().lower() for value in values for part in value.split(",")]
    found = [name for name in named if name and name != "identity"]
    if not found:
        return ""
    if len(found) > 1 or found[0] not in _WINDOW:
        raise FetchFailed("the server sends the file in an encoding that was not asked for")
    return found[0]


async def decoded(chunks: AsyncIterator[bytes], encoding: str) -> AsyncGenerator[bytes, None]:
    """The plain bytes, in chunks of at most 64 KiB. Raises FetchFailed where they are damaged."""
    if not encoding:
        async for chunk in chunks:
            yield chunk
        return
    inflating: _Inflating = zlib.decompressobj(_WINDOW[encoding])
    try:
        async for chunk in chunks:
            rest, made = chunk, b"-"
            while not inflating.eof and (rest or len(made) == _STEP):
                made = inflating.decompress(rest, _STEP)
                rest = inflating.unconsumed_tail
                if made:
                    yield made
    except zlib.error:
        raise FetchFailed("the server says that the file is compressed, and it is not, or it is damaged") from None
    if not inflating.eof:
        raise FetchFailed("the file ended before its end: fetch it again")
