"""A store in memory that several runners may share: what holds on it does not hang on the local disk."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from runner.errors import StoreFailed, TooLarge
from runner.workspace.base import CHUNK_BYTES, Digest, KeyExists, KeyMissing, ObjectInfo, Staging


class MemoryStaging:
    def __init__(self, store: MemoryStore, max_bytes: int) -> None:
        self._store, self._max_bytes = store, max_bytes
        self._data = bytearray()

    async def write(self, chunk: bytes) -> None:
        self._data += chunk
        if len(self._data) > self._max_bytes:
            raise TooLarge("too large", limit=self._max_bytes)

    async def finish(self) -> Digest:
        return Digest(hashlib.sha256(self._data).hexdigest(), len(self._data))

    async def park(self) -> None:
        pass

    async def commit(self, key: str) -> Digest:
        await self._store.create(key, bytes(self._data))
        return await self.finish()

    async def abort(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.abort()


class MemoryStream:
    def __init__(self, chunks: list[bytes]) -> None:
        self._chunks = chunks
        self.closed = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        await asyncio.sleep(0)
        if self.closed or not self._chunks:
            raise StopAsyncIteration
        return self._chunks.pop(0)

    async def aclose(self) -> None:
        self.closed = True


class MemoryStore:
    """``before`` is called with each key before it is created, and may raise."""

    def __init__(self) -> None:
        self.objects_now: dict[str, bytes] = {}
        self.before: Callable[[str], None] = lambda key: None
        self.trips = 0

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        pass

    async def probe(self) -> None:
        pass

    async def _turn(self) -> None:
        self.trips += 1
        await asyncio.sleep(0)

    async def create(self, key: str, data: bytes) -> None:
        await self._turn()
        self.before(key)
        if key in self.objects_now:
            raise KeyExists("there already", cause=key)
        self.objects_now[key] = data

    async def create_in_order(self, items: Sequence[tuple[str, bytes]], then: tuple[str, bytes] | None = None) -> bool:
        for key, data in items[:-1]:
            with suppress(KeyExists):
                await self.create(key, data)
        await self.create(*items[-1])
        with suppress(StoreFailed):
            if then is not None:
                await self.create(*then)
                return True
        return False

    async def read(self, key: str) -> bytes:
        await self._turn()
        if key not in self.objects_now:
            raise KeyMissing("missing", cause=key)
        return self.objects_now[key]

    async def read_many(self, keys: Sequence[str]) -> list[bytes | None]:
        await self._turn()
        return [self.objects_now.get(key) for key in keys]

    async def exists(self, key: str) -> bool:
        await self._turn()
        return key in self.objects_now

    def stage(self, max_bytes: int) -> Staging:
        return MemoryStaging(self, max_bytes)

    async def open(self, key: str, start: int = 0, end: int | None = None) -> MemoryStream:
        data = (await self.read(key))[start:end]
        return MemoryStream([data[at : at + CHUNK_BYTES] for at in range(0, len(data), CHUNK_BYTES)])

    async def keys(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        await self._turn()
        return sorted(key for key in self.objects_now if key.startswith(prefix) and key > after)[:limit]

    async def names(self, prefix: str, after: str = "", limit: int = 1000) -> list[str]:
        await self._turn()
        below = {key[len(prefix) :].partition("/")[0] for key in self.objects_now if key.startswith(prefix)}
        return sorted(name for name in below if name > after)[:limit]

    async def objects(self, prefix: str, after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        found = [key for key in await self.keys(prefix, after, 1 << 30) if "/" not in key[len(prefix) :]]
        return [ObjectInfo(key, len(self.objects_now[key]), time.time()) for key in found[:limit]]

    async def commit_many(self, items: Sequence[tuple[str, Staging]]) -> None:
        for key, staging in items:
            with suppress(KeyExists):
                await staging.commit(key)

    async def create_many(self, items: Sequence[tuple[str, bytes]]) -> None:
        for key, data in items:
            with suppress(KeyExists):
                await self.create(key, data)

    async def delete(self, key: str) -> None:
        await self._turn()
        self.objects_now.pop(key, None)

    async def delete_many(self, keys: Sequence[str]) -> None:
        for key in keys:
            await self.delete(key)

    async def tidy(self, prefix: str) -> None:
        pass
