"""Events on their way to a listener: order, the end of a run, and a listener who does not read."""

from __future__ import annotations

import asyncio
import time

import pytest

from runner.api.v1 import executions
from runner.conversations.result import RunEvent, RunResult
from runner.errors import StoreFailed


def event(number: int, kind: str = "stdout") -> RunEvent:
    return RunEvent(number, kind, {"text": str(number)})


async def failing(feed: executions.Feed, after_s: float) -> RunResult:
    await feed.put(event(1, "started"))
    await asyncio.sleep(after_s)
    raise StoreFailed("the disk is full")


async def test_a_late_failure_is_the_last_event() -> None:
    feed = executions.Feed()
    work = asyncio.create_task(failing(feed, 0.1))
    work.add_done_callback(feed.end)
    seen = [part async for part in executions._events(feed, work, "e" * 32, "r1") if not part.startswith(b":")]
    assert seen[0].startswith(b"event: started\n")
    assert seen[1] == (
        b'event: error\ndata: {"execution_id": "' + b"e" * 32 + b'", "code": "store_failed", '
        b'"detail": "the disk is full", "request_id": "r1"}\n\n'
    )
    assert len(seen) == 2


async def test_a_silent_wait_begins_with_a_comment_and_goes_on_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executions, "KEEP_ALIVE_S", 0.05)
    feed = executions.Feed()
    work: asyncio.Task[RunResult] = asyncio.create_task(asyncio.sleep(3600))  # type: ignore[arg-type]
    stream = executions._events(feed, work, "e" * 32, "r1")
    began = time.monotonic()
    assert [await anext(stream) for _ in range(3)] == [b": keep-alive\n\n"] * 3
    assert time.monotonic() - began < 1
    await feed.put(event(1))
    assert (await anext(stream)).startswith(b"event: stdout\n")
    work.cancel()


async def test_a_listener_who_does_not_read_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    assert executions.SLOW_LISTENER_S == 5
    monkeypatch.setattr(executions, "SLOW_LISTENER_S", 0.1)
    feed = executions.Feed()

    async def loud() -> RunResult:
        for number in range(2000):
            await feed.put(event(number))
        raise AssertionError("the end is reached")

    work = asyncio.create_task(loud())
    work.add_done_callback(feed.end)
    stream = executions._events(feed, work, "e" * 32, "r1")
    await anext(stream)  # the comment, or the first event
    async with asyncio.timeout(5):
        await asyncio.wait((work,))
    rest = [part async for part in stream]
    assert len(rest) == 1
    assert b'"code": "slow_listener"' in rest[0]
