"""Turns of callers at the name service: nobody's names that are never answered keep those of others waiting."""

from __future__ import annotations

import asyncio
from typing import Final
from weakref import WeakValueDictionary

from runner.egress.addresses import IPAddress
from runner.egress.network import Network

EACH: Final = 2  # of one caller at a time


class Lookups:
    """The system's resolver knows no deadline. Who waits for it may give up, but has the turn until it is back."""

    def __init__(self, network: Network, each: int = EACH) -> None:
        self._network, self._each = network, each
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._going: set[asyncio.Task[list[IPAddress]]] = set()

    async def resolve(self, host: str, caller: str, limit_s: float) -> list[IPAddress]:
        """All addresses of a name. Raises TimeoutError, also where the caller's turns are taken, and what looking it
        up raises.
        """
        turns = self._turns.setdefault(caller, asyncio.Semaphore(self._each))
        async with asyncio.timeout(limit_s):
            await turns.acquire()
            task = asyncio.create_task(self._network.resolve(host))
            self._going.add(task)

            def back(done: asyncio.Task[list[IPAddress]]) -> None:
                self._going.discard(done)
                turns.release()

            task.add_done_callback(back)
            return await asyncio.shield(task)
