"""Places and turns: in the order of arrival, refused at one deadline, given back whatever happens."""

from __future__ import annotations

import asyncio

import pytest

from runner.conversations.turns import Turns
from runner.errors import Busy, QueueFull
from runner.sessions.refusals import busy, execs_full
from runner.sessions.slots import Slots, turn


def soon(seconds: float = 5.0) -> float:
    return asyncio.get_running_loop().time() + seconds


async def test_first_come_first_served() -> None:
    slots, served = Slots(1), list[int]()

    async def work(number: int) -> None:
        async with slots.taken(soon(), execs_full):
            served.append(number)
            await asyncio.sleep(0)

    await asyncio.gather(*(work(number) for number in range(8)))
    assert served == list(range(8))


async def test_a_refusal_names_the_place_and_when_to_come_again() -> None:
    slots = Slots(1)
    async with slots.taken(soon(), execs_full):
        with pytest.raises(QueueFull) as refused:
            async with slots.taken(soon(0.01), execs_full):
                pass
    assert refused.value.detail == "exec queue is full"
    assert refused.value.fields["position"] == 1
    assert isinstance(refused.value.fields["retry_after_ms"], int)
    async with slots.taken(soon(0.01), execs_full):  # it was given back
        pass


async def test_no_limit() -> None:
    slots = Slots(0)
    async with slots.taken(soon(), execs_full), slots.taken(soon(), execs_full):
        pass


async def test_a_turn_is_refused_and_handed_on() -> None:
    turns = Turns()
    async with turn(turns, soon(), busy):
        with pytest.raises(Busy, match="session is busy"):
            async with turn(turns, soon(0.01), busy):
                pass
    assert not turns.locked()
    with pytest.raises(ValueError):
        async with turn(turns, soon(), busy):
            raise ValueError
    assert not turns.locked()
