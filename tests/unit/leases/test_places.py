"""Places for runs: how many there are, who gets one that becomes free, and that none is lost."""

from __future__ import annotations

import asyncio

import pytest

from runner.leases.places import Places

LONG_S = 60.0


async def begun(places: Places, tenant: str, wait_s: float = LONG_S) -> asyncio.Task[bool]:
    """Somebody who waits by now."""
    task = asyncio.create_task(places.take(tenant, wait_s))
    await asyncio.sleep(0)
    return task


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def count(places: Places) -> int:
    """How many are free."""
    found = 0
    while await places.take("count", 0):
        found += 1
    for _ in range(found):
        places.give("count")
    return found


async def test_as_many_as_there_are() -> None:
    places = Places(2)
    assert [await places.take("a", 0) for _ in range(3)] == [True, True, False]
    places.give("a")
    assert await count(places) == 1


async def test_who_has_fewest_comes_first_and_then_who_came_first() -> None:
    """A tenant that fills all places and the queue keeps no other waiting for longer than one of its runs."""
    places = Places(2)
    for _ in range(2):
        assert await places.take("many", 0)
    waiting = {name: await begun(places, name[:-1]) for name in ("many1", "many2", "few1", "few2", "other1")}
    order = []
    for holder in ("many", "many", "few", "other", "many"):
        places.give(holder)
        await settled()
        order += [name for name, task in waiting.items() if task.done() and name not in order]
    assert order == ["few1", "other1", "many1", "few2", "many2"]
    assert all(task.result() for task in waiting.values())
    for tenant in ("few", "many"):
        places.give(tenant)
    assert await count(places) == 2


async def test_tenants_take_turns_at_the_only_one() -> None:
    places = Places(1)
    assert await places.take("many", 0)
    queue = [await begun(places, "many") for _ in range(2)]
    few = await begun(places, "few")
    places.give("many")
    await settled()
    assert few.done()
    places.give("few")
    await settled()
    assert [task.done() for task in queue] == [True, False]
    places.give("many")
    assert await queue[1]


async def test_who_gives_up_waiting_has_none() -> None:
    places = Places(1)
    assert await places.take("a", 0)
    assert not await places.take("b", 0.01)
    places.give("a")
    assert await count(places) == 1


@pytest.mark.parametrize("given_first", [False, True])
async def test_none_is_lost_with_who_leaves(given_first: bool) -> None:
    places = Places(1)
    assert await places.take("a", 0)
    task = await begun(places, "b")
    if given_first:
        places.give("a")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    if not given_first:
        places.give("a")
    assert await count(places) == 1
