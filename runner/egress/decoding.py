"""Undoes the compression of a body as it comes, and never makes more of a chunk than is asked for."""

from __future__ import annotations

import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Final, Protocol

from runner.errors import FetchFailed

_STEP: Final = 64 << 10
_MEMBERS: Final = 1024  # of one gzip body: what is made of empty ones costs time, and no size counts it
_DAMAGED: Final = "the server says that the file is compressed, and it is not, or it is damaged"
_WINDOW: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class _Inflating(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def unconsumed_tail(self) -> bytes: ...
    @property
    def unused_data(self) -> bytes: ...
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
    body = _Body(encoding)
    try:
        async for chunk in chunks:
            for made in body.plain(chunk):
                yield made
    except zlib.error:
        raise FetchFailed(_DAMAGED) from None
    if not body.complete:
        raise FetchFailed("the file ended before its end: fetch it again")


class _Body:
    """One compressed body. Of gzip it is a row of members (RFC 1952), whose contents are one file; zeros after the last
    are padding. Whatever else follows is refused: a file is not handed on of which a part was left out.
    """

    def __init__(self, encoding: str) -> None:
        self._window = _WINDOW[encoding]
        self._inflating: _Inflating = zlib.decompressobj(self._window)
        self._members = 1
        self._padded = False

    @property
    def complete(self) -> bool:
        """Whether nothing is missing."""
        return self._inflating.eof

    def plain(self, chunk: bytes) -> Iterator[bytes]:
        """What a chunk makes. Raises zlib.error, FetchFailed."""
        rest = chunk
        while rest:
            if self._inflating.eof and not (rest := self._next(rest)):
                return
            made = b""
            while not self._inflating.eof and (rest or len(made) == _STEP):
                made = self._inflating.decompress(rest, _STEP)
                rest = self._inflating.unconsumed_tail
                if made:
                    yield made
            rest = self._inflating.unused_data if self._inflating.eof else b""

    def _next(self, rest: bytes) -> bytes:
        """Begin another member with what follows one; empty where that is padding. Raises FetchFailed."""
        if self._window != _WINDOW["gzip"] or self._padded or rest[0] == 0:
            if self._window != _WINDOW["gzip"] or rest.strip(b"\0"):
                raise FetchFailed(_DAMAGED)
            self._padded = True
            return b""
        self._members += 1
        if self._members > _MEMBERS:
            raise FetchFailed(f"the file is compressed in more than {_MEMBERS} parts")
        self._inflating = zlib.decompressobj(self._window)
        return rest
