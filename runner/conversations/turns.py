"""Whose turn it is in a conversation: one at a time, in the order of arrival, and waiting that can be refused.

Unlike ``asyncio.Lock`` it hands the turn on directly, so that between two holders there is no moment in which
the conversation looks idle, and everybody who waits can be sent away at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """A fair lock. ``async with`` works as with ``asyncio.Lock``."""

    def __init__(self) -> None:
        self._held = False
        self._waiters: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiters)

    def locked(self) -> bool:
        """Whether somebody has the turn."""
        return self._held

    def try_acquire(self) -> bool:
        """Take the turn if nobody has it."""
        if self._held:
            return False
        self._held = True
        return True

    async def acquire(self) -> bool:
        """Wait for the turn. Raises what ``refuse`` was given."""
        if self.try_acquire():
            return True
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.release()  # it was handed over in the moment in which the caller left
            raise
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
        return True

    def release(self) -> None:
        """Hand the turn to who has waited longest."""
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
        self._held = False

    def refuse(self, error: Callable[[], Exception]) -> None:
        """Send away everybody who waits, each with an error of its own."""
        waiters = list(self._waiters)
        self._waiters.clear()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error())

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(self, *_: object) -> None:
        self.release()
