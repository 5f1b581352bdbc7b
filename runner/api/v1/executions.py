"""Routes of runs: execute as JSON or as an event stream, interrupt, and what a result refers to."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.background import BackgroundTask
from starlette.responses import JSONResponse, Response, StreamingResponse

from runner.api.auth import Tenant
from runner.api.v1 import schemas, translate
from runner.api.v1.conversations import service
from runner.conversations.conversation import new_execution_id
from runner.conversations.result import RunEvent, RunResult
from runner.errors import FolioboxError
from runner.model import RunRequest

router = APIRouter(prefix="/v1/conversations", tags=["runs"])

KEEP_ALIVE_S = 5.0
SLOW_LISTENER_S = 30.0
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
    return JSONResponse(translate.run(await service(request).run(tenant, id, run)))


async def _stream(request: Request, tenant: str, id: str, run: RunRequest) -> Response:
    """Events of a run. It goes on to its end when the listener leaves or does not keep up."""
    execution_id = new_execution_id()
    queue: asyncio.Queue[RunEvent] = asyncio.Queue(_QUEUE)
    gone = False

    async def listen(event: RunEvent) -> None:
        nonlocal gone
        if not gone:
            try:
                await asyncio.wait_for(queue.put(event), SLOW_LISTENER_S)
            except TimeoutError:
                gone = True

    def leave() -> None:
        nonlocal gone
        gone = True
        while not queue.empty():
            queue.get_nowait()

    work = asyncio.create_task(service(request).run(tenant, id, run, listen, execution_id))
    first = asyncio.create_task(queue.get())
    await asyncio.wait((work, first), return_when=asyncio.FIRST_COMPLETED)
    if work.done() and not first.done():
        first.cancel()
        await work  # an error before the first event is an ordinary response

    async def events() -> AsyncIterator[bytes]:
        waiting = first
        try:
            while True:
                done, _ = await asyncio.wait((waiting,), timeout=KEEP_ALIVE_S)
                if done:
                    event = waiting.result()
                    yield translate.event(event, execution_id)
                    if event.kind == "done":
                        return
                    waiting = asyncio.create_task(queue.get())
                elif gone or (work.done() and queue.empty()):
                    yield _broken(work)
                    return
                else:
                    yield b": keep-alive\n\n"
        finally:
            waiting.cancel()
            leave()

    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events(), 200, headers, "text/event-stream", BackgroundTask(_forget, work))


def _broken(work: asyncio.Task[RunResult]) -> bytes:
    """The last event of a run that this service could not finish."""
    error = work.exception() if work.done() and not work.cancelled() else None
    code = error.code if isinstance(error, FolioboxError) else "internal"
    return f'event: error\ndata: {{"code": "{code}"}}\n\n'.encode()


async def _forget(work: asyncio.Task[RunResult]) -> None:
    with contextlib.suppress(Exception):
        await asyncio.shield(work)


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
