"""The local store: objects as files of one folder, which one runner owns at a time."""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from runner.errors import ConfigurationError, StoreFailed, StoreFull
from runner.telemetry.logs import logger
from runner.workspace.base import ByteStream, KeyExists, ObjectInfo, Staging
from runner.workspace.config import DATA_DIR
from runner.workspace.disk import FULL, Disk, sync_folder
from runner.workspace.disk_batch import Batches
from runner.workspace.disk_writer import Writer
from runner.workspace.local_streams import LocalStaging, LocalStream

T = TypeVar("T")
log = logger("store")

THREADS: Final = 8
LARGE_THREADS: Final = 3
BATCH_THREADS: Final = 1
BATCH_FILES: Final = 128
BATCH_BYTES: Final = 8 << 20


class LocalStore:
    """``Store`` below ``data_dir/store``. See ``disk`` for what makes an object durable.

    Sets of threads of their own, so that work of one kind waits only for its like: reads and listings; small
    objects; bytes and syncs of large files; batches of small files; removal. One thread makes batches, of few files
    each: a second one, or larger ones, would be hardly faster and would hold up the syncs of everybody else.
    """

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir
        self._named = f"{DATA_DIR}={str(data_dir)!r}"
        self._root = data_dir / "store"
        self._disk = Disk(str(self._root))
        self._batches = Batches(self._disk)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="store")
        self._small = ThreadPoolExecutor(1, thread_name_prefix="store-small")
        self._writer = Writer(self._disk, self._small, self._batches.syncs_whole)
        self._large = ThreadPoolExecutor(LARGE_THREADS, thread_name_prefix="store-large")
        self._batch = ThreadPoolExecutor(BATCH_THREADS, thread_name_prefix="store-batch")
        self._removal = ThreadPoolExecutor(1, thread_name_prefix="store-removal")
        self._lock_fd = -1
        self.swept = 0
        self.full = False  # when it was probed

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
        self._lock_fd = fd
        try:
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:  # only who holds it cannot be told
            if error.errno not in FULL:
                raise

    async def close(self) -> None:
        """Wait for what is being written, then let another runner in."""
        for pool in (self._pool, self._small, self._large, self._batch, self._removal):
            await asyncio.to_thread(pool.shutdown)
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)

    async def probe(self) -> None:
        """Create a key twice: the second must fail and the first stay.

        A full disk proves nothing and is not refused: what is there can be served, and space may come back.
        """
        key = f"probe/{secrets.token_hex(8)}"
        reason = "a second create of the same key succeeded"
        try:
            await self.create(key, b"first")
            try:
                await self.create(key, b"second")
            except KeyExists:
                reason = "" if await self.read(key) == b"first" else "an object was overwritten"
            await self.delete(key)
        except StoreFull as error:
            self.full = True
            with suppress(StoreFailed):
                await self.delete(key)
            log.warning("the disk of the store is full: files can be read and not written", cause=error.cause)
            return
        except StoreFailed as error:
            reason = error.cause or error.detail
        if reason:
            raise ConfigurationError(
                f"{self._named} cannot hold the store: {reason}. It needs a file system with hard links and fsync.",
                setting=DATA_DIR,
            )

    async def create(self, key: str, data: bytes) -> None:
        """Write a small object."""
        await self._writer.create((key, data))

    async def create_in_order(self, items: Sequence[tuple[str, bytes]], then: tuple[str, bytes] | None = None) -> bool:
        """Write a few small objects, one after the other, in one go."""
        return await self._writer.create(*items, then=then)

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
        return LocalStaging(self._disk, self._writer, self._large, max_bytes)

    async def open(self, key: str, start: int = 0, end: int | None = None) -> ByteStream:
        """Bytes of an object."""
        return await self._hop(LocalStream.start, self._disk, self._large, key, start, end)

    async def names(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        """Names directly below a folder."""
        return await self._hop(self._disk.names, prefix, after, limit)

    async def keys(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        """Keys below a folder."""
        return await self._hop(self._disk.keys, prefix, after, limit)

    async def objects(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        """Objects directly below a folder."""
        return await self._hop(self._disk.infos, prefix, after, limit, pool=self._removal)

    async def commit_many(self, items: Sequence[tuple[str, Staging]]) -> None:
        """Commit stagings, a batch at a time."""
        left = list(items)
        try:
            for _, staging in left:
                await staging.finish()  # afterwards nothing is awaited between handing over and the batch
            while left:
                contents: list[tuple[str, bytes | str]] = []
                size = 0
                while left and len(contents) < BATCH_FILES and size < BATCH_BYTES:
                    key, staging = left.pop()
                    assert isinstance(staging, LocalStaging)
                    contents.append((key, staging.hand_over()))
                    size += staging.size
                await self._finish(self._batches.create, contents)
        finally:
            for _, staging in left:
                await staging.abort()

    async def create_many(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Create small objects, a batch at a time."""
        batch: list[tuple[str, bytes]] = []
        size = 0
        for item in items:
            batch.append(item)
            size += len(item[1])
            if len(batch) >= BATCH_FILES or size >= BATCH_BYTES:
                await self._finish(self._batches.create, batch)
                batch, size = [], 0
        if batch:
            await self._finish(self._batches.create, batch)

    async def delete(self, key: str) -> None:
        """Remove an object."""
        await self._hop(self._disk.delete_many, [key])

    async def delete_many(self, keys: Sequence[str]) -> None:
        """Remove objects, in this order."""
        if keys:
            await self._hop(self._disk.delete_many, list(keys), pool=self._removal)

    async def tidy(self, prefix: str) -> None:
        """Remove empty folders."""
        await self._hop(self._disk.tidy, prefix, pool=self._removal)

    async def _hop(self, work: Callable[..., T], *arguments: object, pool: Executor | None = None) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool or self._pool, work, *arguments)

    async def _finish(self, work: Callable[..., T], *arguments: object) -> T:
        """A batch that is done even when the caller is cancelled before a thread is free: it has staging files."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._batch, work, *arguments))
