"""When the pool starts sandboxes: never more at once than there are cores, and not while first cells run."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, cast

import pytest

from runner.conversations import pool as pool_module
from runner.conversations.pool import Pool
from runner.model import SandboxLimits
from tests.unit.conversations.pool_lab import Spare, until


class Starts:
    """Stands in for the start of a sandbox, which here takes until it is let go."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.times: list[float] = []
        self.go = asyncio.Event()

    async def __call__(self, *_: Any) -> Spare:
        self.times.append(time.monotonic())
        self.running += 1
        self.most = max(self.most, self.running)
        await self.go.wait()
        self.running -= 1
        return Spare()


def _pool(monkeypatch: pytest.MonkeyPatch, starts: Starts, size: int, cores: int = 2) -> Pool:
    monkeypatch.setattr(pool_module, "start_sandbox", starts)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    return Pool(cast(Any, None), SandboxLimits(), size, 5.0, lambda: True)


async def test_starts_at_once_are_as_many_as_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts()
    pool = _pool(monkeypatch, starts, size=0, cores=2)
    takes = [asyncio.create_task(pool.create()) for _ in range(5)]
    await until(lambda: starts.running == 2)
    starts.go.set()
    await asyncio.gather(*takes)
    assert (len(starts.times), starts.most) == (5, 2)


async def test_a_spare_is_replaced_a_moment_after_it_was_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts()
    starts.go.set()
    pool = _pool(monkeypatch, starts, size=1)
    monkeypatch.setattr(pool_module, "_LULL_S", 0.1)
    pool.start()
    await until(lambda: pool.ready == 1)
    taken = time.monotonic()
    assert pool.pop() is not None
    await until(lambda: pool.ready == 1)
    assert starts.times[-1] - taken >= 0.1
    await pool.close()
