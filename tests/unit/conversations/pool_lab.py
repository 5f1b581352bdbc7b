"""Spares that cost nothing, for tests of the pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Spare:
    """As much of a sandbox's client as the pool looks at."""

    sandbox_id = "spare"

    def __init__(self) -> None:
        self.alive, self.destroyed = True, 0
        self.may_end = asyncio.Event()
        self.may_end.set()
        self._ended: Callable[[], None] = lambda: None

    def when_ended(self, call: Callable[[], None]) -> None:
        self._ended = call

    def die(self) -> None:
        """Its stream ends."""
        self.alive = False
        self._ended()

    async def destroy(self) -> None:
        """End it, once it may."""
        self.destroyed += 1
        await self.may_end.wait()
        if self.alive:
            self.die()


async def until(condition: Callable[[], object]) -> None:
    """Until something holds, with a deadline."""
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.001)
