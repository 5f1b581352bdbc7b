"""Bytes on their way into and out of the local store."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Executor
from contextlib import suppress
from types import TracebackType
from typing import Final, Self, TypeVar

from runner.errors import StoreFailed, TooLarge
from runner.workspace.base import CHUNK_BYTES, Digest, KeyMissing
from runner.workspace.disk import Disk, door, read_exactly, write_all
from runner.workspace.disk_writer import Writer

T = TypeVar("T")

_INLINE_HASH: Final = 64 << 10


class LocalStaging:
    """A file under way. Up to ``CHUNK_BYTES`` stay in memory: a small one costs one hop to a thread.

    ``writer`` makes small objects; ``large`` writes and syncs those that have a file.
    """

    def __init__(self, disk: Disk, writer: Writer, large: Executor, max_bytes: int) -> None:
        self._disk = disk
        self._writer = writer
        self._large = large
        self._max_bytes = max_bytes
        self._hash = hashlib.sha256()
        self._pending: list[bytes] = []
        self._pending_bytes = 0
        self._size = 0
        self._digest: Digest | None = None
        self._spent = False
        self._in_file = False
        # A cancelled caller leaves its thread running: the lock keeps abort from closing a file in use, and
        # ``_dropped`` keeps a flush that comes late from making the file again.
        self._file_lock = threading.Lock()
        self._dropped = False
        self._fd = -1
        self._path = ""

    async def write(self, chunk: bytes) -> None:
        """Append; ``TooLarge`` past the limit."""
        if self._spent or self._digest is not None:
            raise StoreFailed("The upload had already ended.", cause="write to a finished staging")
        self._size += len(chunk)
        if self._size > self._max_bytes:
            await self.abort()
            raise TooLarge(
                f"The file is larger than {self._max_bytes} bytes, the limit here; send a smaller one.",
                limit=self._max_bytes,
            )
        self._pending.append(bytes(chunk))
        self._pending_bytes += len(chunk)
        if self._pending_bytes >= CHUNK_BYTES:
            await self._flush_pending()

    async def finish(self) -> Digest:
        """Hash what is left. A small file stays in memory until it is committed."""
        if self._digest is None:
            if self._spent:
                raise StoreFailed("The upload had already ended.", cause="finish of a spent staging")
            if self._in_file or self._pending_bytes > _INLINE_HASH:
                await self._flush_pending()
            elif self._pending:
                self._hash.update(b"".join(self._pending))
            self._digest = Digest(self._hash.hexdigest(), self._size)
        return self._digest

    async def park(self) -> None:
        """Into its file, which is closed until the commit."""
        await self.finish()
        if not self._spent:
            self._in_file = True
            await self._hop(self._park, self._take())

    async def commit(self, key: str) -> Digest:
        """Make it the object ``key``."""
        digest = await self.finish()
        if self._spent:
            raise StoreFailed("The upload had already ended.", cause=f"second commit, to {key}")
        self._spent = True
        if self._in_file:
            await self._hop(self._commit, key)
        else:
            await self._writer.create((key, b"".join(self._take())))
        return digest

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._size

    def hand_over(self) -> bytes | str:
        """Spend it: its bytes, or the path of its file, closed, which the caller removes. It must be finished."""
        if self._spent or self._digest is None:
            raise StoreFailed("The upload had already ended.", cause="hand over of a spent or unfinished staging")
        self._spent = True
        with self._file_lock:
            if not self._path:
                return b"".join(self._take())
            fd, self._fd = self._fd, -1
            if fd >= 0:
                os.close(fd)
            self._dropped = True
            return self._path

    async def abort(self) -> None:
        """Drop it, unless a commit was begun."""
        if not self._spent:
            self._spent = True
            self._pending.clear()
            if self._in_file:
                await self._hop(self._drop)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()

    def _take(self) -> list[bytes]:
        taken, self._pending, self._pending_bytes = self._pending, [], 0
        return taken

    async def _flush_pending(self) -> None:
        self._in_file = True
        await self._hop(self._flush, self._take())

    async def _hop(self, work: Callable[..., T], *arguments: object) -> T:
        """Work in a thread that is done even when the caller is cancelled before a thread is free."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._large, work, *arguments))

    def _flush(self, chunks: list[bytes]) -> None:
        with self._file_lock, door("write", "staging"):
            if self._dropped:
                raise StoreFailed("The upload was given up.", cause="write after abort")
            if self._fd < 0:
                self._fd, self._path = self._disk.begin()
            for chunk in chunks:
                self._hash.update(chunk)
                write_all(self._fd, chunk)

    def _commit(self, key: str) -> None:
        with self._file_lock:
            try:
                with door("write", key):
                    if self._fd < 0:
                        self._fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
                    os.fsync(self._fd)
                self._disk.place(self._path, key)
            finally:
                self._discard()

    def _park(self, chunks: list[bytes]) -> None:
        with self._file_lock, door("write", "staging"):
            if self._dropped:
                raise StoreFailed("The upload was given up.", cause="write after abort")
            if not self._path:
                self._fd, self._path = self._disk.begin()
            for chunk in chunks:
                write_all(self._fd, chunk)
            if self._fd >= 0:
                fd, self._fd = self._fd, -1
                os.close(fd)

    def _drop(self) -> None:
        with self._file_lock:
            self._discard()

    def _discard(self) -> None:
        self._dropped = True
        fd, self._fd = self._fd, -1
        with suppress(OSError):  # what stays is swept at the next start
            if fd >= 0:
                os.close(fd)
            os.unlink(self._path)


class LocalStream:
    """Bytes of an object, one chunk a hop. The file is closed at the end, by ``aclose``, or when dropped."""

    def __init__(self, pool: Executor, fd: int, offset: int, end: int) -> None:
        self._pool = pool
        self._fd = fd
        self._offset = offset
        self._end = end
        self._first: bytes | None = None
        self._lock = threading.Lock()

    @classmethod
    def start(cls, disk: Disk, pool: Executor, key: str, start: int, end: int | None) -> LocalStream:
        """Open and read the first chunk, in a thread. The range must lie within the object."""
        path = disk.path(key)
        with door("read", key):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except (FileNotFoundError, NotADirectoryError):
                raise KeyMissing("The store has lost an object that it should hold.", cause=key) from None
            stream = cls(pool, fd, start, 0)
            size = os.fstat(fd).st_size
            stream._end = size if end is None else end
            if not 0 <= start <= stream._end <= size:
                stream._close()
                raise StoreFailed(
                    "An object of the store is shorter than it should be.",
                    cause=f"{key}: {size} bytes, asked for {start} to {end}",
                )
            stream._first = stream._next()
        return stream

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        chunk, self._first = self._first, None
        if chunk is None:
            if self._fd < 0:
                raise StopAsyncIteration
            chunk = await asyncio.get_running_loop().run_in_executor(self._pool, self._next)
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def aclose(self) -> None:
        """Close the file."""
        self._first = b""
        self._close()

    def _next(self) -> bytes:
        with self._lock, door("read", "a blob"):
            size = min(CHUNK_BYTES, self._end - self._offset)
            chunk = read_exactly(self._fd, size, self._offset) if size > 0 and self._fd >= 0 else b""
            self._offset += len(chunk)
            if self._offset >= self._end:
                self._close_now()
            return chunk

    def _close(self) -> None:
        with self._lock:
            self._close_now()

    def _close_now(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self._close_now()
