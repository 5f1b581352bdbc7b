"""Archives: one object a stem, replaced only by whoever knows the one that is there, the one before kept beside it.

A writer says which archive its workspace was restored from or last saved as. Where another is there now, it is newer:
nothing is written. An archive goes out in one request, so that there is never a part of one.
"""

from __future__ import annotations

import asyncio
import hashlib
import mmap
import os
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final
from weakref import WeakValueDictionary

from runner.errors import ArchiveSuperseded, StorageFailed, TooLarge
from runner.objects import keys
from runner.objects.bucket import (
    SHA256,
    Absent,
    Bucket,
    Clash,
    Condition,
    Fault,
    Found,
    Missing,
    Opened,
    Same,
    Unconditional,
)
from runner.objects.place import Place

_TYPE: Final = "application/gzip"
_AT_ONCE: Final = 2  # archives that are sent at the same time: each may be mapped whole
_SLOW: Final = Fault("it took too long", "timeout")


@dataclass(frozen=True, slots=True)
class Stamp:
    """Which archive it is. Holds no secret: keep it with the conversation. ``sha256`` is empty where it is unknown,
    ``etag`` where only the content is known: it may lie in another place by now, or not be there.
    """

    etag: str
    sha256: str
    size: int

    def json(self) -> dict[str, Any]:
        """To be stored."""
        return asdict(self)

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Stamp:
        """What ``json`` gave."""
        return cls(str(stored["etag"]), str(stored["sha256"]), int(stored["size"]))

    def elsewhere(self) -> Stamp | None:
        """What is known of it in another place than the one where it was seen."""
        return Stamp("", self.sha256, self.size) if self.sha256 else None

    @classmethod
    def of(cls, found: Found) -> Stamp:
        """Of an object."""
        return cls(found.etag, found.metadata.get(SHA256, ""), found.size)


@dataclass(frozen=True, slots=True)
class Anything:
    """Replace whatever is there: only where a person said so."""


ANY: Final = Anything()


@dataclass(frozen=True, slots=True)
class Archive:
    """An archive that is read. ``chunks`` end early only by raising."""

    stamp: Stamp
    size: int
    chunks: AsyncIterator[bytes]


class Archives:
    """Reads and writes archives of any bucket. ``spool_dir`` holds one while it is packed; nobody sees its name."""

    def __init__(self, spool_dir: Path, max_bytes: int, timeout_s: float) -> None:
        self._spool_dir, self._max_bytes, self._timeout_s = spool_dir, max_bytes, timeout_s
        self._locks: WeakValueDictionary[tuple[Place, str], asyncio.Lock] = WeakValueDictionary()
        self._sending = asyncio.Semaphore(_AT_ONCE)

    def lock(self, place: Place, stem: str) -> asyncio.Lock:
        """Held by whoever reads, writes or removes this archive."""
        return self._locks.setdefault((place, stem), asyncio.Lock())

    @asynccontextmanager
    async def open(self, bucket: Bucket, key: str) -> AsyncIterator[Archive | None]:
        """The archive, or None where there is none. Raises StorageFailed, TooLarge before any byte."""
        until = asyncio.get_running_loop().time() + self._timeout_s
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout_at(until):
                    opened = await stack.enter_async_context(bucket.open(key))
            except Missing:
                yield None
                return
            except Fault as fault:
                raise _failed("read", fault) from None
            except TimeoutError:
                raise _failed("read", _SLOW) from None
            if opened.found.size > self._max_bytes:
                raise _too_large(self._max_bytes)
            yield Archive(Stamp.of(opened.found), opened.found.size, _whole(opened, until))

    async def save(
        self,
        bucket: Bucket,
        key: str,
        previous: str,
        source: AsyncIterator[bytes],
        over: Stamp | Anything | None,
    ) -> Stamp:
        """Write an archive over ``over``. Raises ArchiveSuperseded, TooLarge, StorageFailed; then nothing changed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                with tempfile.TemporaryFile(dir=self._spool_dir) as file:
                    size, sha256 = await self._spool(source, file)
                    async with self._sending:
                        return await self._send(bucket, key, previous, file, Stamp("", sha256, size), over)
        except Fault as fault:
            raise _failed("write", fault) from None
        except TimeoutError:
            raise _failed("write", _SLOW) from None
        except OSError as error:
            raise _failed("write", Fault("the runner's disk cannot hold it", os.strerror(error.errno or 0))) from None

    async def _spool(self, source: AsyncIterator[bytes], file: IO[bytes]) -> tuple[int, str]:
        digest, size = hashlib.sha256(), 0
        async for chunk in source:
            size += len(chunk)
            if size > self._max_bytes:
                raise _too_large(self._max_bytes)
            digest.update(chunk)
            await asyncio.to_thread(file.write, chunk)
        await asyncio.to_thread(file.flush)
        if not size:
            raise Fault("it is empty")
        return size, digest.hexdigest()

    async def _send(
        self, bucket: Bucket, key: str, previous: str, file: IO[bytes], new: Stamp, over: Stamp | Anything | None
    ) -> Stamp:
        there = await bucket.head(key)
        if there is not None and there.metadata.get(SHA256) == new.sha256 and there.size == new.size:
            return Stamp.of(there)  # also where an earlier attempt arrived and its answer did not
        only = None if isinstance(over, Anything) else await _only(bucket, key, there, over)
        if there is not None:
            await bucket.copy(key, previous)
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        try:
            etag = await _put(bucket, key, data, new.sha256, only)
        except Clash:
            there = await bucket.head(key)
            if there is not None and there.metadata.get(SHA256) == new.sha256:
                return Stamp.of(there)
            raise _superseded() from None
        return Stamp(etag, new.sha256, new.size)


async def _only(bucket: Bucket, key: str, there: Found | None, over: Stamp | None) -> Condition:
    """The condition under which ``over`` is replaced. Raises ArchiveSuperseded."""
    if there is None:
        if over is None or not over.etag:
            return Absent()
    elif over is not None and (there.etag == over.etag or await _holds(bucket, key, there, over)):
        return Same(there.etag)
    raise _superseded()


async def _holds(bucket: Bucket, key: str, there: Found, stamp: Stamp) -> bool:
    """Whether an object has the content of another one: a copy of it, perhaps made without its metadata."""
    if not stamp.sha256 or there.size != stamp.size:
        return False
    told = there.metadata.get(SHA256)
    if told:
        return told == stamp.sha256
    digest = hashlib.sha256()
    try:
        async with bucket.open(key) as opened:
            async for chunk in opened.chunks:
                digest.update(chunk)
            return opened.found.etag == there.etag and digest.hexdigest() == stamp.sha256
    except Missing:
        return False


async def _put(bucket: Bucket, key: str, data: memoryview, sha256: str, only: Condition) -> str:
    try:
        return await bucket.put(key, data, _TYPE, sha256, only)
    except Unconditional:
        forget = getattr(bucket, "without_conditions", None)
        if forget is None:
            raise
        forget()
        return await bucket.put(key, data, _TYPE, sha256, only)


async def _whole(opened: Opened, until: float) -> AsyncIterator[bytes]:
    """All of an object, by ``until`` in the loop's time. Raises StorageFailed."""
    seen = 0
    try:
        while True:
            async with asyncio.timeout_at(until):
                chunk = await anext(opened.chunks, None)
            if chunk is None:
                break
            seen += len(chunk)
            yield chunk
    except Fault as fault:
        raise _failed("read", fault) from None
    except TimeoutError:
        raise _failed("read", _SLOW) from None
    if seen != opened.found.size:
        raise _failed("read", Fault("it broke off", f"{seen} of {opened.found.size} bytes"))


def _failed(what: str, fault: Fault) -> StorageFailed:
    return StorageFailed(f"archive {what} failed: {fault.reason}", cause=fault.code)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(
        f"the archive has more than {limit} bytes: remove files, or raise SANDBOX_MAX_ARCHIVE_BYTES", limit=limit
    )


def _superseded() -> ArchiveSuperseded:
    return ArchiveSuperseded(
        "another archive is there than the one that this workspace was restored from or saved as; it stays as it is"
    )


def stem_keys(prefix: str, stem: str) -> tuple[str, str]:
    """Where the archive of a stem lies, and where the one before it."""
    return keys.archive_key(prefix, stem), keys.previous_key(prefix, stem)
