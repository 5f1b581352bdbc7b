"""Writes files as tar.gz while they are read. The same files give the same bytes, at any time and place."""

from __future__ import annotations

import asyncio
import tarfile
import zlib
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final

from runner.workspace.archives.entries import Item, Opener, whole
from runner.workspace.archives.tar_header import BLOCK

_LEVEL: Final = 6
_INLINE: Final = 16 << 10


async def tar_gz(items: Iterable[Item], opener: Opener) -> AsyncGenerator[bytes, None]:
    """The archive. A file that cannot be read whole raises, so that the stream has no valid end."""
    gzip = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
    async with aclosing(_tar(items, opener)) as chunks:
        async for chunk in chunks:
            # Compressing a chunk takes milliseconds, in which the loop could serve others.
            piece = gzip.compress(chunk) if len(chunk) <= _INLINE else await asyncio.to_thread(gzip.compress, chunk)
            if piece:
                yield piece
    yield gzip.flush()


async def _tar(items: Iterable[Item], opener: Opener) -> AsyncGenerator[bytes, None]:
    for item in items:
        yield header(item)
        if item.entry is not None:
            async with opener(item.entry) as stream:
                async for chunk in whole(item.entry, stream):
                    yield chunk
            yield bytes(-item.entry.size % BLOCK)
    yield bytes(2 * BLOCK)


def header(item: Item) -> bytes:
    """The header of a file or folder, in PAX form where ASCII and 100 bytes are not enough."""
    info = tarfile.TarInfo(item.path)
    if item.entry is None:
        info.type, info.mode = tarfile.DIRTYPE, 0o755
    else:
        info.size, info.mode = item.entry.size, item.entry.mode & 0o777
        info.mtime = max(0, item.entry.modified_ns) // 1_000_000_000
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")
