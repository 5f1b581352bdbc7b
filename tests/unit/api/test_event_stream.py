"""Events on their way to a listener: comments, the end of a run, a run without result, and one not yet found."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from runner.api.v1 import event_stream
from runner.conversations.events import EventLog
from runner.conversations.result import nothing_ran
from runner.conversations.runs import Running
from runner.errors import Busy, StoreFailed
from runner.model import InterpreterState, Outcome

ID = "e" * 32
RESULT = nothing_ran(ID, Outcome.OK, 0, InterpreterState.KEPT, "")


def opened(log: EventLog) -> asyncio.Task[Running]:
    async def give() -> Running:
        return Running(ID, log)

    return asyncio.create_task(give())


async def parts(log: EventLog, after: int = 0) -> list[bytes]:
    return [part async for part in event_stream.events(opened(log), after, "r1") if not part.startswith(b":")]


def told(part: bytes) -> tuple[str, dict[str, Any]]:
    lines = part.decode().splitlines()
    data = next(line for line in lines if line.startswith("data: "))
    return lines[0].removeprefix("event: "), json.loads(data[6:])


async def test_a_late_failure_is_the_last_event() -> None:
    log = EventLog()
    log.add("started", {})
    log.end(None, StoreFailed("the disk is gone"))
    seen = [told(part) for part in await parts(log)]
    assert [name for name, _ in seen] == ["started", "error"]
    assert seen[1][1] == {
        "execution_id": ID, "code": "store_failed", "detail": "the disk is gone", "request_id": "r1",
    }  # fmt: skip


async def test_what_is_not_kept_is_an_error_that_says_where_to_go_on() -> None:
    log = EventLog(limit=2000)
    for _ in range(10):
        log.add("stdout", {"text": "x" * 500})
    name, body = told((await parts(log))[0])
    assert (name, body["code"], body["oldest"]) == ("error", "events_dropped", log.oldest)
    assert f"after={log.oldest - 1}" in body["detail"]


async def test_a_silent_wait_begins_with_a_comment_and_goes_on_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert event_stream.KEEP_ALIVE_S < 5
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.05)
    log = EventLog()
    stream = event_stream.events(opened(log), 0, "r1")
    began = time.monotonic()
    assert [await anext(stream) for _ in range(3)] == [event_stream.KEEP_ALIVE] * 3
    assert time.monotonic() - began < 4
    log.add("stdout", {"text": "a"})
    assert told(await anext(stream))[0] == "stdout"
    log.add("done", {}, result=RESULT)
    log.end(RESULT)
    assert [told(part)[0] async for part in stream] == ["done"]


async def test_a_run_that_is_found_late_is_told_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_stream, "KEEP_ALIVE_S", 0.02)
    found = asyncio.Event()

    async def find() -> Running:
        await found.wait()
        log = EventLog()
        log.add("done", {}, result=RESULT)
        log.end(RESULT)
        return Running(ID, log)

    stream = event_stream.events(asyncio.create_task(find()), 0, "r1")
    assert await anext(stream) == event_stream.KEEP_ALIVE
    assert await anext(stream) == event_stream.KEEP_ALIVE
    found.set()
    assert [told(part)[0] async for part in stream if part != event_stream.KEEP_ALIVE] == ["done"]


async def test_a_run_that_is_refused_late_is_an_error() -> None:
    async def refuse() -> Running:
        await asyncio.sleep(0.01)
        raise Busy("later")

    stream = event_stream.events(asyncio.create_task(refuse()), 0, "r1")
    seen = [told(part) async for part in stream if part != event_stream.KEEP_ALIVE]
    assert [(name, body["code"]) for name, body in seen] == [("error", "busy")]


async def test_a_listener_who_leaves_is_forgotten() -> None:
    log = EventLog()
    stream = event_stream.events(opened(log), 0, "r1")
    await anext(stream)
    reader = asyncio.ensure_future(anext(stream))
    async with asyncio.timeout(5):
        while not log._waiting:
            await asyncio.sleep(0)
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    assert not log._waiting
