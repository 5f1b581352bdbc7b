"""When the pool starts sandboxes: never more at once than there are cores, and not while first cells run."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any, cast

import pytest

from runner.conversations import pool as pool_module
from runner.conversations.pool import Pool
from runner.errors import BackendUnavailable
from runner.model import SandboxLimits
from tests.unit.conversations.pool_lab import Spare, until


class Starts:
    """Stands in for the start of a sandbox, which here takes until it is let go."""

    def __init__(self) -> None:
        self.running = self.most = 0
        self.times: list[float] = []
        self.go = asyncio.Event()

    async def __call__(self, *_: Any, **__: Any) -> Spare:
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


async def test_a_start_whose_turn_does_not_come_in_time_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where those before it hang."""
    starts = Starts()
    pool = _pool(monkeypatch, starts, size=0, cores=1)
    first = asyncio.create_task(pool.create())
    await until(lambda: starts.running == 1)
    async with asyncio.timeout(5):
        with pytest.raises(BackendUnavailable, match="too slowly") as caught:
            await pool.create(deadline=time.monotonic() + 0.05)
    assert caught.value.fields["retry_after_ms"]
    starts.go.set()
    await first
    assert await pool.create(deadline=time.monotonic() + 5) is not None
    assert len(starts.times) == 2


async def test_what_is_held_starts_nothing_and_sends_away_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = Starts()
    pool = _pool(monkeypatch, starts, size=1, cores=1)
    pool.use("image")
    first = asyncio.create_task(pool.create())
    await until(lambda: starts.running == 1)
    waiting = [asyncio.create_task(pool.create()) for _ in range(3)]
    await until(lambda: len(pool._patience) == 3)
    pool.hold("the engine has stopped")
    pool.hold("the engine has stopped")
    async with asyncio.timeout(5):
        refused = await asyncio.gather(*waiting, pool.create(), return_exceptions=True)
    assert {(type(one), str(one)) for one in refused} == {(BackendUnavailable, "the engine has stopped")}
    assert all(isinstance(one, BackendUnavailable) and one.fields["retry_after_ms"] for one in refused)
    starts.go.set()
    await first
    monkeypatch.setattr(pool_module, "_LULL_S", 0.0)
    pool.start()
    for _ in range(20):
        await asyncio.sleep(0)
    assert (len(starts.times), pool.count) == (1, 0)
    pool.use("image")
    await until(lambda: pool.ready == 1)
    await pool.close()
