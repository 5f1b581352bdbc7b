"""The local store: objects as files of one folder, which one runner owns at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, TypeVar

from runner.errors import ConfigurationError, StoreFailed
from runner.workspace.base import ByteStream, KeyExists, Staging
from runner.workspace.config import DATA_DIR
from runner.workspace.disk import Disk, sync_folder
from runner.workspace.local_streams import LocalStaging, LocalStream

T = TypeVar("T")

THREADS: Final = 8


class LocalStore:
    """``Store`` below ``data_dir/store``. See ``disk`` for what makes an object durable."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._named = f"{DATA_DIR}={str(data_dir)!r}"
        self._root = data_dir / "store"
        self._disk = Disk(str(self._root))
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="store")
        self._lock_fd = -1
        self.swept = 0

    async def start(self) -> None:
        """Make the folders, take the lock, remove staging files that a killed runner left."""
        await self._hop(self._start)

    def _start(self) -> None:
        try:
            self._data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in (self._root, Path(self._disk.objects), Path(self._disk.staging)):
                folder.mkdir(mode=0o700, exist_ok=True)
                sync_folder(str(folder.parent))
            self._take_lock()
            self.swept = self._disk.sweep()
        except OSError as error:
            raise ConfigurationError(
                f"{self._named} cannot hold the store ({error.strerror}); name a folder that this user may write to.",
                cause=repr(error),
                setting=DATA_DIR,
            ) from error

    def _take_lock(self) -> None:
        fd = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode("ascii", "replace").strip()
            os.close(fd)
            raise ConfigurationError(
                f"{self._named} is in use by another runner (process {holder or 'unknown'}); "
                "stop that one or name another folder.",
                setting=DATA_DIR,
            ) from None
        except OSError:
            os.close(fd)
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._lock_fd = fd

    async def close(self) -> None:
        """Wait for what is being written, then let another runner in."""
        await asyncio.to_thread(self._pool.shutdown)
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)

    async def probe(self) -> None:
        """Create a key twice: the second must fail and the first stay."""
        key = f"probe/{secrets.token_hex(8)}"
        reason = "a second create of the same key succeeded"
        try:
            await self.create(key, b"first")
            try:
                await self.create(key, b"second")
            except KeyExists:
                reason = "" if await self.read(key) == b"first" else "an object was overwritten"
            await self.delete(key)
        except StoreFailed as error:
            reason = error.cause or error.detail
        if reason:
            raise ConfigurationError(
                f"{self._named} cannot hold the store: {reason}. It needs a file system with hard links and fsync.",
                setting=DATA_DIR,
            )

    async def create(self, key: str, data: bytes) -> None:
        """Write a small object."""
        await self._hop(self._disk.create, key, data)

    async def read(self, key: str) -> bytes:
        """A small object."""
        return await self._hop(self._disk.read, key)

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        """Several small objects in one hop."""
        return await self._hop(self._disk.read_many, list(keys)) if keys else []

    async def exists(self, key: str) -> bool:
        """Whether the object is there."""
        return await self._hop(self._disk.exists, key)

    def stage(self, max_bytes: int) -> Staging:
        """Begin an object."""
        return LocalStaging(self._disk, self._pool, max_bytes)

    async def open(self, key: str, start: int = 0, end: int | None = None) -> ByteStream:
        """Bytes of an object."""
        return await self._hop(LocalStream.start, self._disk, self._pool, key, start, end)

    async def names(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        """Names directly below a folder."""
        return await self._hop(self._disk.names, prefix, after, limit)

    async def keys(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        """Keys below a folder."""
        return await self._hop(self._disk.keys, prefix, after, limit)

    async def delete(self, key: str) -> None:
        """Remove an object."""
        await self._hop(self._disk.delete, key)

    async def _hop(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *arguments)
