"""A stream of bytes read in exact amounts, with all that comes counted; and gzip taken off it."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from typing import Final

from runner.errors import BadArchive, TooLarge

PIECE: Final = 256 << 10
GZIP_MAGIC: Final = b"\x1f\x8b"


class Source:
    """Bytes from ``chunks``. More than ``limit`` of them is ``TooLarge``, fewer than asked for ``BadArchive``."""

    def __init__(self, chunks: AsyncIterator[bytes], limit: int) -> None:
        self._chunks, self._limit = chunks, limit
        self._held = b""
        self._seen = 0

    async def exactly(self, size: int) -> bytes:
        """That many bytes. Keep ``size`` small."""
        parts = [part async for part in self.pieces(size)]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def pieces(self, size: int) -> AsyncIterator[bytes]:
        """That many bytes, as they come."""
        while size:
            if not self._held and not await self._more():
                raise BadArchive("the archive ends early: send it whole")
            piece, self._held = self._held[:size], self._held[size:]
            size -= len(piece)
            yield piece

    async def rest(self) -> AsyncIterator[bytes]:
        """Everything that is left."""
        while self._held or await self._more():
            piece, self._held = self._held, b""
            yield piece

    async def _more(self) -> bool:
        async for chunk in self._chunks:
            if chunk:
                self._seen += len(chunk)
                if self._seen > self._limit:
                    raise TooLarge(f"the upload holds more than {self._limit} bytes unpacked", limit=self._limit)
                self._held = chunk
                return True
        return False


async def gunzip(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What a gzip stream holds, in pieces of at most ``PIECE`` bytes. Raises ``BadArchive``."""
    inflate = zlib.decompressobj(31)
    begun = False
    async for chunk in chunks:
        data = chunk
        while data:
            if inflate.eof:  # another member follows, as gzip allows
                inflate, begun = zlib.decompressobj(31), False
            begun = True
            try:
                piece = inflate.decompress(data, PIECE)
            except zlib.error:
                raise BadArchive("this is not gzip, or it is damaged") from None
            data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            if piece:
                yield piece
            while not inflate.eof and not data and len(piece) == PIECE:  # what it still holds inside
                piece = inflate.decompress(b"", PIECE)
                if piece:
                    yield piece
    if not begun or not inflate.eof:
        raise BadArchive("the gzip stream ends early: send it whole")
