"""How many calls look into long output at once: each holds as much of it as is kept."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

_READERS: Final = 2


class Gate:
    """Further ones wait. One for a deployment."""

    def __init__(self) -> None:
        self._reading = asyncio.Semaphore(_READERS)
        self._searching: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """While a stream is read and lines of it are chosen: a few in all, as that is soon over."""
        async with self._reading:
            yield

    @asynccontextmanager
    async def searching(self, tenant: str) -> AsyncIterator[None]:
        """While a sandbox looks through a stream, which may have to wait for its turn: one of a tenant."""
        lock = self._searching.get(tenant)
        if lock is None:
            lock = self._searching[tenant] = asyncio.Lock()
        async with lock:
            yield
