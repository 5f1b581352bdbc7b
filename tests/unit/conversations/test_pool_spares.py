"""Which spares the pool has: none that are dead, none of an image that is not used any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from runner.conversations import pool as pool_module
from runner.conversations.pool import Pool
from runner.model import SandboxLimits
from tests.unit.conversations.pool_lab import Spare, until

CAP = 2


class Place:
    """A pool of two below a cap of two; starts take while ``go`` is cleared."""

    def __init__(self) -> None:
        self.made: list[Spare] = []
        self.go = asyncio.Event()
        self.go.set()
        self.starting = 0
        self.pool = Pool(cast(Any, None), SandboxLimits(), CAP, 5.0, lambda: self.pool.count < CAP)
        self.pool.changed = self.pool.wake
        self.pool.use("a@1")

    async def start(self, *_: object, **__: object) -> Spare:
        """A start of a sandbox."""
        self.starting += 1
        await self.go.wait()
        self.starting -= 1
        self.made.append(Spare())
        return self.made[-1]

    async def full(self) -> None:
        """Until all spares are ready."""
        await until(lambda: self.pool.ready == CAP)


@pytest.fixture
async def place(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Place]:
    made = Place()
    monkeypatch.setattr(pool_module, "start_sandbox", made.start)
    monkeypatch.setattr(pool_module, "_LULL_S", 0.0)
    monkeypatch.setattr(pool_module, "_RETRY_S", (0.01, 0.02, 0.04))
    made.pool.start()
    await made.full()
    yield made
    for spare in made.made:
        spare.may_end.set()
    await made.pool.close()


async def test_a_spare_that_ends_counts_no_longer_and_is_replaced(place: Place) -> None:
    for spare in place.made[:CAP]:
        spare.die()
    assert place.pool.ready == 0
    await place.full()
    assert [spare.destroyed for spare in place.made] == [1, 1, 0, 0]
    assert place.pool.pop() is cast(Any, place.made[2])


async def test_one_that_was_dead_before_it_was_ready_is_no_spare(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    stillborn = Spare()
    stillborn.alive = False
    coming = [stillborn]

    async def start(*_: object, **__: object) -> Spare:
        return coming.pop() if coming else await place.start()

    monkeypatch.setattr(pool_module, "start_sandbox", start)
    place.made[0].die()
    await place.full()
    assert (coming, stillborn.destroyed, len(place.made)) == ([], 1, CAP + 1)


async def test_what_was_handed_out_is_no_longer_the_pools_when_it_ends(place: Place) -> None:
    taken = place.pool.pop()
    assert taken is cast(Any, place.made[0])
    await place.full()
    place.made[0].die()
    assert (place.pool.ready, place.made[0].destroyed) == (CAP, 0)


async def test_what_ends_again_and_again_is_started_ever_more_slowly(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "_RETRY_S", (0.01, 0.06, 60.0))
    clock = asyncio.get_running_loop().time
    for pause in (0.01, 0.06):
        began, before = clock(), len(place.made)
        for spare in place.made[-CAP:]:  # together: that is one loss
            spare.die()
        await until(lambda before=before: len(place.made) == before + CAP)  # type: ignore[misc]
        assert clock() - began >= pause
    for spare in place.made[-CAP:]:
        spare.die()
    await until(lambda: place.pool.count == 0)
    assert place.pool._not_before - clock() > 50


async def test_another_image_replaces_every_spare_and_nothing_else(place: Place) -> None:
    taken = place.pool.pop()
    await place.full()
    place.pool.use("a@1")
    assert place.pool.ready == CAP
    place.pool.use("a@2")
    assert place.pool.ready == 0
    await place.full()
    assert [spare.destroyed for spare in place.made] == [0, 1, 1, 0, 0]
    assert taken is cast(Any, place.made[0])


async def test_a_start_of_the_old_image_that_was_under_way_is_ended(place: Place) -> None:
    place.go.clear()
    assert place.pool.pop() is not None
    await until(lambda: place.starting == 1)
    place.pool.use("a@2")
    place.go.set()
    await until(lambda: len(place.made) > CAP and place.made[CAP].destroyed)
    await place.full()
    assert [spare.destroyed for spare in place.made] == [0, 1, 1, 0, 0]


async def test_what_is_being_ended_counts_below_the_cap(place: Place) -> None:
    for spare in place.made:
        spare.may_end.clear()
    place.pool.use("a@2")
    await asyncio.sleep(0.02)
    assert (place.pool.count, place.pool.ready, len(place.made)) == (CAP, 0, CAP)
    for spare in place.made[:CAP]:
        spare.may_end.set()
    await place.full()
