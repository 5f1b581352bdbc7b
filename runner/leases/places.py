"""Places for runs, shared by tenants: one that becomes free goes to whoever waits and has the fewest."""

from __future__ import annotations

import asyncio
from collections import Counter


class Places:
    """``limit`` places; who waits for one waits behind others of the same tenant, and of tenants with fewer."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._held: Counter[str] = Counter()
        self._waiting: list[tuple[str, asyncio.Future[None]]] = []

    async def take(self, tenant: str, wait_s: float) -> bool:
        """Take a place, which has to be given back; False when there was none within ``wait_s``."""
        if self._free:
            self._free -= 1
            self._held[tenant] += 1
            return True
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((tenant, turn))
        try:
            await asyncio.wait({turn}, timeout=wait_s)
        except asyncio.CancelledError:
            if turn.done():  # it came at the same moment
                self.give(tenant)
            raise
        finally:
            if not turn.done():
                self._waiting.remove((tenant, turn))
        return turn.done()

    def give(self, tenant: str) -> None:
        """Give a place back. It counts as the giver's still while it is decided who gets it, so that tenants take
        turns where there is but one.
        """
        if self._waiting:
            first = min(self._waiting, key=lambda each: self._held[each[0]])  # the first of those with as few
            self._waiting.remove(first)
            self._held[first[0]] += 1
            first[1].set_result(None)
        else:
            self._free += 1
        self._held[tenant] -= 1
        if not self._held[tenant]:
            del self._held[tenant]
