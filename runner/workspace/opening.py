"""Bytes of a workspace's files on their way out; whole ones never end well unless they have their SHA-256."""

from __future__ import annotations

import asyncio
import hashlib
from typing import Final, Self

from runner.errors import RangeNotSatisfiable, StoreFailed
from runner.model import FileEntry
from runner.workspace import keys
from runner.workspace.base import CHUNK_BYTES, ByteStream
from runner.workspace.core import Core

_INLINE: Final = 32 << 10  # hashing so much takes less time than asking a thread to


class Opening(Core):
    """Reading."""

    async def open(self, entry: FileEntry, start: int = 0, end: int | None = None) -> ByteStream:
        """Bytes ``start`` to ``end`` (exclusive, None for all) of a file; a missing blob is found at once.

        A whole file is compared with its SHA-256: one of at most ``CHUNK_BYTES`` here, before any byte, a
        longer one before its last chunk. A part of a file cannot be: damage in it is handed out unseen.
        Raises ``RangeNotSatisfiable``, ``StoreFailed``.
        """
        stop = entry.size if end is None else min(end, entry.size)
        if not 0 <= start <= stop or (start == entry.size and start > 0):
            raise RangeNotSatisfiable(f"The file has {entry.size} bytes; ask for a range within them.", size=entry.size)
        if (start, stop) == (0, entry.size):
            return await self.open_blob(entry.blob, entry.size)
        return await self._store.open(keys.blob(self.tenant, entry.blob), start, stop)

    async def open_blob(self, blob: str, size: int) -> ByteStream:
        """All bytes of a blob that ``adopt_blob`` kept, compared with its SHA-256. Raises ``StoreFailed``."""
        source = await self._store.open(keys.blob(self.tenant, blob), 0, size)
        stream = Verified(source, blob, size)
        if size <= CHUNK_BYTES:
            await stream.prove()
        return stream


class Verified:
    """A stream of a whole blob that holds back its last chunk until all bytes were seen to be right.

    A chunk is hashed in a thread while the consumer has the one before.
    """

    def __init__(self, source: ByteStream, blob: str, size: int) -> None:
        self._source = source
        self._blob = blob
        self._missing = size
        self._hash = hashlib.sha256()
        self._hashing: asyncio.Future[None] | None = None
        self._held: bytes | None = None
        self._proven = False
        self._failure: StoreFailed | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._failure is not None:
            raise self._failure
        while not self._proven:
            chunk = await self._take()
            given, self._held = self._held, chunk or self._held
            if chunk is not None and given is not None:
                return given
        given, self._held = self._held, None
        if given is None:
            raise StopAsyncIteration
        return given

    async def prove(self) -> None:
        """Read all there is and compare. For blobs that may lie in memory. Raises ``StoreFailed``."""
        chunks = []
        while (chunk := await self._take()) is not None:
            chunks.append(chunk)
        self._held = b"".join(chunks) or None

    async def aclose(self) -> None:
        """Close what is read from."""
        self._proven, self._held = True, None
        await self._source.aclose()

    async def _take(self) -> bytes | None:
        """The next chunk, on its way into the hash; at the end compare, and None."""
        chunk = await anext(self._source, None)
        if self._hashing is not None:
            await self._hashing
            self._hashing = None
        if chunk is not None:
            self._missing -= len(chunk)
            if len(chunk) <= _INLINE:
                self._hash.update(chunk)
            else:
                self._hashing = asyncio.get_running_loop().run_in_executor(None, self._hash.update, chunk)
            return chunk
        if self._missing or self._hash.hexdigest() != self._blob.partition("-")[0]:
            await self.aclose()
            self._failure = StoreFailed(
                "A stored file is damaged; put it again, or restore the store from a backup.",
                cause=f"blob {self._blob}: its bytes have the SHA-256 {self._hash.hexdigest()}",
                blob=self._blob,
            )
            raise self._failure
        self._proven = True
        return None
