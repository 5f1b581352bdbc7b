"""Events of a run as server-sent events: begun within a second, kept alive, and never in the way of the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from fastapi import Request
from starlette.responses import Response, StreamingResponse

from runner.api.errors import note, told
from runner.api.v1 import translate
from runner.conversations.events import Follower
from runner.conversations.result import RunEvent
from runner.conversations.runs import Running
from runner.errors import EventsDropped

FIRST_BYTE_S = 0.8  # what fails before is an ordinary response
KEEP_ALIVE_S = 4.5
KEEP_ALIVE = b": keep-alive\n\n"
MEDIA_TYPE = "text/event-stream"


async def stream(request: Request, opening: asyncio.Task[Running], after: int = 0) -> Response:
    """The answer that tells the events above ``after`` of a run that is being found or begun.

    204 when it has ended and there are none: what reconnects by itself stops then. Raises what the run was
    refused for, if that is known within a second.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + FIRST_BYTE_S
    await asyncio.wait((opening,), timeout=FIRST_BYTE_S)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    if opening.done():
        running = opening.result()
        await _first(running, after, deadline)
        if running.log.failed and not running.began:
            await running.result()
        if running.log.ended and after >= running.log.seq:
            return Response(status_code=204, headers=headers | identity(running))
        headers |= identity(running)
    request_id: str = request.scope.get("foliobox.request_id", "")
    return StreamingResponse(events(opening, after, request_id), 200, headers, MEDIA_TYPE)


async def _first(running: Running, after: int, deadline: float) -> None:
    """Until there is something to tell, or ``deadline``."""
    with suppress(TimeoutError):
        async with asyncio.timeout_at(deadline):
            while running.log.seq <= after and not running.log.ended:
                await running.log.changed()


def identity(running: Running) -> dict[str, str]:
    """Headers that name a run, and say whether another request began it."""
    headers = {"X-Execution-Id": running.execution_id}
    return {**headers, "Idempotent-Replayed": "true"} if running.replayed else headers


async def events(opening: asyncio.Task[Running], after: int, request_id: str) -> AsyncIterator[bytes]:
    """Server-sent events, the last of which is ``done`` or an ``error``; comments while nothing happens."""
    execution_id, silent = "", True
    try:
        while not opening.done():
            silent = False
            yield KEEP_ALIVE
            await asyncio.wait((opening,), timeout=KEEP_ALIVE_S)
        running = opening.result()
        execution_id = running.execution_id
        if silent and running.log.seq <= after and not running.log.ended:
            yield KEEP_ALIVE
        follower = running.log.follow(after)
        while True:
            event = await _next(follower)
            if event is None:
                yield KEEP_ALIVE
                continue
            yield translate.event(event, execution_id)
            if event.kind == "done":
                return
    except StopAsyncIteration:
        return
    except Exception as error:
        if not execution_id:
            note(error)  # others are noted where the run ends
        code, detail = told(error)
        oldest = {"oldest": error.fields["oldest"]} if isinstance(error, EventsDropped) else {}
        yield translate.failure(code, detail, execution_id, request_id, **oldest)


async def _next(follower: Follower) -> RunEvent | None:
    """The next event; None when none came in time for a comment."""
    try:
        async with asyncio.timeout(KEEP_ALIVE_S):
            return await anext(follower)
    except TimeoutError:
        return None
