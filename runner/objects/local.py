"""The provider ``local``: a folder of the runner as a bucket. Its work is done in threads."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, TypeVar, cast

from runner.objects import folder
from runner.objects.bucket import Condition, Fault, Found, Opened

T = TypeVar("T")
_PIECE: Final = 256 << 10
NO_ADDRESSES: Final = "presigned URLs are unsupported for local storage"


class LocalBucket:
    """Objects as files below ``root``, in ``folders`` that are made as they are needed."""

    def __init__(self, root: Path, folders: str = "") -> None:
        self._root, self._folders = root, folders

    async def put(self, key: str, data: memoryview, content_type: str, sha256: str = "", only: Condition = None) -> str:
        """Durable when it returns. A file has no place for a type."""
        return await _aside(lambda: folder.put(self._root, self._folders + key, data, only))

    async def head(self, key: str) -> Found | None:
        """What is there."""
        return await _aside(lambda: folder.head(self._root, self._folders + key))

    @asynccontextmanager
    async def open(self, key: str) -> AsyncIterator[Opened]:
        """The file, in pieces."""
        fd, found = await _aside(lambda: folder.opened(self._root, self._folders + key))
        try:
            yield Opened(found, _pieces(fd))
        finally:
            os.close(fd)

    async def delete(self, key: str) -> None:
        """Remove it."""
        await _aside(lambda: folder.delete(self._root, self._folders + key))

    async def copy(self, source: str, target: str) -> None:
        """Read and written again."""

        def work() -> None:
            fd, _ = folder.opened(self._root, self._folders + source)
            with os.fdopen(fd, "rb") as file:
                folder.put(self._root, self._folders + target, memoryview(file.read()), None)

        await _aside(work)

    async def list(self, prefix: str) -> AsyncIterator[list[Found]]:
        """All at once."""
        found = await _aside(lambda: folder.listing(self._root, self._folders + prefix))
        cut = len(self._folders)
        yield [Found(each.key[cut:], each.size, each.etag, each.modified) for each in found]

    async def presign(self, key: str, seconds: int) -> str:
        """There are none."""
        raise Fault(NO_ADDRESSES)


async def _aside(work: Callable[[], T]) -> T:
    return cast(T, await asyncio.to_thread(folder.guarded, work))


async def _pieces(fd: int) -> AsyncIterator[bytes]:
    while piece := await asyncio.to_thread(os.read, fd, _PIECE):
        yield piece
