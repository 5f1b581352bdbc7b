"""Ends sandboxes that are idle or dead, and forgets conversations that nobody has asked for in a while."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

from runner.conversations.conversation import Conversation
from runner.conversations.residents import Residents
from runner.telemetry.logs import logger

FORGET_S: Final = 600.0
_SWEEP_S, _LEAST_S = 5.0, 0.25
log = logger("reaper")


class Reaper:
    """Sweeps every few seconds, more often where a conversation asks for a short idle time."""

    def __init__(self, residents: Residents, swept: Callable[[], None], clock: Callable[[], float] = time.monotonic):
        self._residents, self._swept, self._clock = residents, swept, clock
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to sweep."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Sweep no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause_s())
            await self.sweep()

    def _pause_s(self) -> float:
        times = (c.effective.idle_ttl_ms / 2000 for c in self._residents if c.mirror is not None)
        return max(_LEAST_S, min(_SWEEP_S, min(times, default=_SWEEP_S)))

    async def sweep(self) -> None:
        """One look at every conversation; those that are due end side by side."""
        due = [
            self._end(conversation, reason) for conversation in self._residents if (reason := self._due(conversation))
        ]
        await asyncio.gather(*due)
        self._swept()

    def _due(self, conversation: Conversation) -> str | None:
        """Why its sandbox is to end now; one without is forgotten on the way."""
        now = self._clock()
        idle_s = now - conversation.last_used
        ttl_s = conversation.effective.idle_ttl_ms / 1000
        if conversation.mirror is None:
            keep_s = max(ttl_s, FORGET_S) if conversation.memorable else FORGET_S
            if now - max(conversation.last_used, conversation.asked_for) > keep_s and not conversation.busy:
                self._residents.forget(conversation)
            return None
        if not conversation.evictable:
            return None
        return "idle" if idle_s > ttl_s else None if conversation.alive else "sandbox_lost"

    async def _end(self, conversation: Conversation, reason: str) -> None:
        try:
            await conversation.evict(reason)
        except Exception:  # one that cannot be ended must not keep the others alive
            log.exception("could not reap", conversation=conversation.workspace.id)
