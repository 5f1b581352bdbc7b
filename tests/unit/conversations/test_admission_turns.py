"""The turn of a conversation: order, hand-over, and waiting that ends in every way it can."""

from __future__ import annotations

import asyncio

import pytest

from runner.conversations.pace import Pace, retry_ms
from runner.conversations.turns import Turns


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_turns_come_in_the_order_of_arrival_and_are_never_free_in_between() -> None:
    turns, seen = Turns(), []

    async def one(number: int) -> None:
        async with turns:
            seen.append(number)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(one(number)) for number in range(5)]
    await asyncio.sleep(0)
    while any(not task.done() for task in tasks):
        assert turns.locked() or not turns.waiting
        await asyncio.sleep(0)
    assert seen == list(range(5))
    assert (turns.locked(), turns.waiting) == (False, 0)


async def test_one_who_leaves_loses_its_place_and_nothing_else() -> None:
    turns = Turns()
    await turns.acquire()
    first, second = asyncio.create_task(turns.acquire()), asyncio.create_task(turns.acquire())
    await settled()
    first.cancel()
    await settled()
    assert turns.waiting == 1
    turns.release()
    assert await second
    turns.release()
    assert not turns.locked()


async def test_a_turn_handed_to_one_who_leaves_in_that_moment_goes_on() -> None:
    turns = Turns()
    await turns.acquire()
    first, second = asyncio.create_task(turns.acquire()), asyncio.create_task(turns.acquire())
    await settled()
    turns.release()
    first.cancel()
    assert await asyncio.wait_for(second, 5)
    turns.release()
    assert not turns.locked()


async def test_a_turn_handed_over_as_the_time_ends_is_not_lost() -> None:
    turns = Turns()
    await turns.acquire()

    async def bounded() -> None:
        async with asyncio.timeout(0.01):
            await turns.acquire()

    task = asyncio.create_task(bounded())
    while not task.done():
        await asyncio.sleep(0)
    with pytest.raises(TimeoutError):
        await task
    turns.release()
    assert (turns.locked(), turns.waiting) == (False, 0)


async def test_all_who_wait_can_be_sent_away() -> None:
    turns = Turns()
    await turns.acquire()
    tasks = [asyncio.create_task(turns.acquire()) for _ in range(3)]
    await settled()
    turns.refuse(lambda: RuntimeError("no"))
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert [str(error) for error in found] == ["no"] * 3
    assert (turns.locked(), turns.waiting) == (True, 0)
    turns.release()
    assert not turns.locked()


def test_the_pace_follows_what_is_served_and_silence_shows() -> None:
    now = 100.0
    pace = Pace(1.0, clock=lambda: now)
    for _ in range(30):
        now += 4.0
        pace.note(since=0.0)
    assert 3.9 < pace.mean_s <= 4.0
    assert 11.5 < pace.wait_s(3, since=0.0) <= 12.0
    now += 50.0
    assert pace.wait_s(3, since=0.0) == 50.0
    assert pace.wait_s(3, since=now) < 12.1  # nobody waited meanwhile


def test_estimates_are_bounded() -> None:
    assert (retry_ms(0.0), retry_ms(2.5), retry_ms(1e9)) == (1000, 2500, 600_000)
