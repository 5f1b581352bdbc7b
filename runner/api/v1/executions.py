"""Routes of runs: execute as JSON or as an event stream, interrupt, and what a result refers to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse

from runner.api.auth import Tenant
from runner.api.encoding import Json
from runner.api.errors import note, told
from runner.api.v1 import schemas, translate
from runner.api.v1.conversations import PLAIN_ID, service
from runner.conversations.conversation import new_execution_id
from runner.conversations.result import RunEvent, RunResult
from runner.model import RunRequest

router = APIRouter(prefix="/v1/conversations", tags=["runs"], dependencies=[PLAIN_ID])

FIRST_BYTE_S = 0.8  # what fails before is an ordinary response
KEEP_ALIVE_S = 4.5
SLOW_LISTENER_S = 5.0
_KEEP_ALIVE = b": keep-alive\n\n"
_QUEUE = 256
ExecutionId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]


@router.post(
    "/{id}/execute",
    responses={200: {"model": schemas.RunOut, "content": {"text/event-stream": {}}}},
)
async def execute(request: Request, tenant: Tenant, id: str, body: schemas.ExecuteIn) -> Response:
    """Run code in a conversation, made if need be. ``Accept: text/event-stream`` gives events as they happen."""
    run = RunRequest(
        code=body.code,
        language=body.language,
        timeout_ms=service(request).limits.timeout_ms(body.timeout_ms),
        fresh=body.fresh,
        stdin=None if body.stdin is None else body.stdin.encode(),
        env=body.env,
    )
    if "text/event-stream" in request.headers.get("accept", ""):
        return await _stream(request, tenant, id, run)
    return Json(translate.run(await service(request).run(tenant, id, run)))


class Feed:
    """Events of a run on their way to one listener. It is dropped when it does not read, and the run goes on."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[RunEvent | None] = asyncio.Queue(_QUEUE)
        self._moved = asyncio.Event()
        self.open = True
        self.slow = False
        self.told = False  # whether there was an event

    @property
    def empty(self) -> bool:
        """Whether nothing waits to be sent."""
        return self._queue.empty()

    async def put(self, event: RunEvent) -> None:
        """Hand an event over, waiting a bounded time for room."""
        self.told = True
        self._moved.set()
        if not self.open:
            return
        try:
            async with asyncio.timeout(SLOW_LISTENER_S):
                await self._queue.put(event)
        except TimeoutError:
            self.slow = True
            self.leave()
            self._queue.put_nowait(None)

    async def get(self) -> RunEvent | None:
        """The next event; None when there will be none."""
        return await self._queue.get() if self.open or not self.empty else None

    async def moved(self, limit_s: float) -> None:
        """Wait until there is an event or the run has ended, or no longer than ``limit_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._moved.wait()

    def leave(self) -> None:
        """Take no more, and forget what waits."""
        self.open = False
        while not self.empty:
            self._queue.get_nowait()

    def end(self, work: asyncio.Task[RunResult]) -> None:
        """The run has ended: nothing follows what waits."""
        self.open = False
        self._moved.set()
        if self.empty:
            self._queue.put_nowait(None)


async def _stream(request: Request, tenant: str, id: str, run: RunRequest) -> Response:
    """Events of a run. It goes on to its end when the listener leaves or does not keep up."""
    execution_id = new_execution_id()
    feed = Feed()
    work = asyncio.create_task(service(request).run(tenant, id, run, feed.put, execution_id))
    work.add_done_callback(feed.end)
    await feed.moved(FIRST_BYTE_S)
    if work.done() and not feed.told:
        await work  # an error before the first event is an ordinary response
    request_id: str = request.scope.get("foliobox.request_id", "")
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    body = _events(feed, work, execution_id, request_id)
    return StreamingResponse(body, 200, headers, "text/event-stream", BackgroundTask(_forget, work))


async def _events(
    feed: Feed, work: asyncio.Task[RunResult], execution_id: str, request_id: str
) -> AsyncIterator[bytes]:
    try:
        if feed.empty:
            yield _KEEP_ALIVE
        while True:
            try:
                async with asyncio.timeout(KEEP_ALIVE_S):
                    event = await feed.get()
            except TimeoutError:
                yield _KEEP_ALIVE
                continue
            if event is None:
                break
            yield translate.event(event, execution_id)
            if event.kind == "done":
                return
        if feed.slow:
            code, detail = "slow_listener", "events were not read fast enough; the run goes on and its files are stored"
        else:
            code, detail = told(work.exception() if work.done() and not work.cancelled() else None)
        yield translate.failure(code, detail, execution_id, request_id)
    finally:
        feed.leave()


async def _forget(work: asyncio.Task[RunResult]) -> None:
    """Wait for the end of a run whose listener has gone or was told."""
    try:
        await asyncio.shield(work)
    except Exception as error:
        note(error)


@router.post("/{id}/interrupt", response_model=schemas.InterruptOut)
async def interrupt(
    request: Request, tenant: Tenant, id: str, body: schemas.InterruptIn | None = None
) -> dict[str, bool]:
    """Stop the run going on; the interpreter is kept if it obeys within 5 s."""
    conversation = await service(request).find(tenant, id)
    return {"interrupted": await conversation.interrupt(body.execution_id if body else None)}


@router.get("/{id}/executions/{execution_id}/results/{number}")
async def get_result(request: Request, tenant: Tenant, id: str, execution_id: ExecutionId, number: int) -> Response:
    """A picture or other representation that a run showed."""
    return await _blob(request, tenant, id, execution_id, "results", number)


@router.get("/{id}/executions/{execution_id}/{stream}")
async def get_output(
    request: Request,
    tenant: Tenant,
    id: str,
    execution_id: ExecutionId,
    stream: Annotated[str, Path(pattern="^(stdout|stderr)$")],
) -> Response:
    """The whole output of a run whose result shows only head and tail (to 16 MiB a stream)."""
    return await _blob(request, tenant, id, execution_id, stream, None)


async def _blob(request: Request, tenant: str, id: str, execution_id: str, name: str, number: int | None) -> Response:
    blob, stream = await service(request).execution_blob(tenant, id, execution_id, name, number)
    headers = {"Content-Length": str(blob.size), "Content-Security-Policy": "sandbox"}
    return StreamingResponse(stream, 200, headers, blob.media_type, BackgroundTask(stream.aclose))
