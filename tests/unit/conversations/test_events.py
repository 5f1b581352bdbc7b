"""The log of a run: order, memory, listeners who keep up, fall behind or come late."""

from __future__ import annotations

import asyncio

import pytest

from runner.conversations.events import LOG_BYTES, SHARE_BYTES, EventLog, LogMemory
from runner.conversations.result import RunEvent, nothing_ran
from runner.errors import EventsDropped, StoreFailed
from runner.model import InterpreterState, Outcome

RESULT = nothing_ran("e" * 32, Outcome.OK, 0, InterpreterState.KEPT, "")


async def drained(log: EventLog, after: int = 0) -> list[RunEvent]:
    return [event async for event in log.follow(after)]


async def test_listeners_get_what_was_and_what_comes_in_order() -> None:
    log = EventLog()
    log.add("started", {})
    listeners = [asyncio.create_task(drained(log, after)) for after in (0, 1, 2)]
    for number in range(20):
        await asyncio.sleep(0)
        log.add("stdout", {"text": str(number)})
    log.add("done", {}, result=RESULT)
    log.end(RESULT)
    seen = [[event.seq for event in await listener] for listener in listeners]
    assert seen == [list(range(first, 23)) for first in (1, 2, 3)]
    assert [event.kind for event in await drained(log, 21)] == ["done"]
    assert await drained(log, 22) == []
    assert await log.result() is RESULT


async def test_adding_never_waits_and_memory_is_bounded() -> None:
    memory = LogMemory()
    log = EventLog(memory)
    idle = log.follow()
    for _ in range(3000):
        log.add("stdout", {"text": "x" * 65_536})  # 190 MiB, and nobody reads: one that waited would do so for ever
    assert log.size <= LOG_BYTES
    assert memory.used == log.size
    with pytest.raises(EventsDropped) as dropped:
        await anext(idle)
    oldest = dropped.value.fields["oldest"]
    assert oldest == log.oldest > 2900
    assert (await anext(log.follow(int(str(oldest)) - 1))).seq == oldest


async def test_a_listener_that_falls_behind_does_not_take_others_along() -> None:
    log = EventLog(limit=200_000)
    slow, fast = log.follow(), log.follow()
    log.add("started", {})
    assert (await anext(slow)).kind == "started"
    for _ in range(100):
        log.add("stdout", {"text": "x" * 10_000})
        while fast.seq < log.seq:
            await anext(fast)
    with pytest.raises(EventsDropped, match="after="):
        await anext(slow)
    assert fast.seq == log.seq == 101


async def test_the_newest_event_stays_whatever_its_size() -> None:
    log = EventLog(limit=1000)
    log.add("stdout", {"text": "x" * 5000})
    log.add("done", {}, result=RESULT)
    log.end(RESULT)
    assert [event.kind for event in await drained(log, 1)] == ["done"]


async def test_all_logs_together_are_bounded_and_those_that_ended_first_go_first() -> None:
    ended = [EventLog() for _ in range(3)]
    waiting = list(ended)

    def relieve() -> bool:
        if waiting:
            waiting.pop(0).forget()
            return True
        return False

    memory = LogMemory(limit=300_000, relieve=relieve)
    for log in ended:
        log._memory = memory
        log.add("stdout", {"text": "x" * 90_000})
        log.end(RESULT)
    live = EventLog(memory)
    live.add("stdout", {"text": "x" * 90_000})
    assert [log.size > 0 for log in ended] == [False, True, True]
    for _ in range(20):
        live.add("stdout", {"text": "x" * 90_000})
    assert [log.size > 0 for log in ended] == [False, False, False]
    assert memory.used == live.size <= 300_000


async def test_runs_that_flood_do_not_cost_others_their_events() -> None:
    memory = LogMemory(limit=1 << 20)
    loud, quiet = EventLog(memory), EventLog(memory)
    quiet.add("started", {})
    for _ in range(100):
        loud.add("stdout", {"text": "x" * 65_536})
        quiet.add("stdout", {"text": "y" * 1000})
    assert quiet.oldest == 1
    assert memory.used <= (1 << 20) + SHARE_BYTES


async def test_a_wait_that_is_cut_short_loses_nothing() -> None:
    log = EventLog()
    follower = log.follow()
    for number in range(1, 6):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await anext(follower)
        log.add("stdout", {"text": "a"})
        assert (await anext(follower)).seq == number


async def test_a_run_without_result_ends_its_listeners_with_the_reason() -> None:
    log = EventLog()
    log.add("started", {})
    follower = log.follow()
    await anext(follower)
    reader, waiter = asyncio.ensure_future(anext(follower)), asyncio.create_task(log.result())
    await asyncio.sleep(0)
    log.end(None, StoreFailed("the disk is gone"))
    for task in (reader, waiter):
        with pytest.raises(StoreFailed, match="the disk is gone"):
            await task


async def test_the_log_of_a_stored_run_has_only_its_end() -> None:
    log = EventLog.of(RESULT, 7)
    assert [(event.seq, event.kind) for event in await drained(log)] == [(7, "done")]
    assert log.next(7) is None
    assert await log.result() is RESULT
