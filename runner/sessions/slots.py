"""Places for work of which only so much goes on at once: fair, waited for until a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from runner.conversations.turns import Turns
from runner.errors import FolioboxError

Refusal = Callable[[int], FolioboxError]
"""What one is told that waited in vain, by how many stood before it at last."""


class Slots:
    """``count`` places, 0 for as many as are asked for. Whoever came first is served first."""

    def __init__(self, count: int) -> None:
        self._free = asyncio.Semaphore(count) if count else None
        self._waiting = 0

    @asynccontextmanager
    async def taken(self, deadline: float, refusal: Refusal) -> AsyncIterator[None]:
        """A place for the length of a block; ``deadline`` is the loop's time. Raises ``refusal``."""
        if self._free is None:
            yield
            return
        self._waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await self._free.acquire()
        except TimeoutError:
            raise refusal(self._waiting) from None
        finally:
            self._waiting -= 1
        try:
            yield
        finally:
            self._free.release()


@asynccontextmanager
async def turn(turns: Turns, deadline: float, refusal: Refusal) -> AsyncIterator[None]:
    """The turn of one conversation, in the order of arrival. Raises ``refusal``."""
    if not turns.try_acquire():
        try:
            async with asyncio.timeout_at(deadline):
                await turns.acquire()
        except TimeoutError:
            raise refusal(turns.waiting + 1) from None
    try:
        yield
    finally:
        turns.release()
