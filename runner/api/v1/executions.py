"""Routes of runs: execute, interrupt, what became of a run, and what its result refers to."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Path, Query, Request
from starlette.background import BackgroundTask
from starlette.responses import Response, StreamingResponse

from runner.api.auth import Tenant
from runner.api.encoding import Json
from runner.api.problems import problems
from runner.api.v1 import event_stream, schemas, translate
from runner.api.v1.routing import PLAIN_ID, StrictRoute, service
from runner.conversations.runs import Running
from runner.errors import InvalidRequest
from runner.model import RunLimits, RunRequest

router = APIRouter(prefix="/v1/conversations", tags=["runs"], dependencies=[PLAIN_ID], route_class=StrictRoute)

ExecutionId = Annotated[str, Path(pattern=r"^[0-9a-f]{32}$")]
After = Annotated[int | None, Query(ge=0, le=1 << 53, description="The last event that was seen.")]
IdempotencyKey = Annotated[
    str | None, Header(description="1 to 255 visible ASCII characters; sent again, the run is given and not repeated.")
]
_EVENTS: Final[dict[str, Any]] = {event_stream.MEDIA_TYPE: {"schema": {"type": "string"}}}
_NUMBER: Final = re.compile(r"[0-9]{1,16}")
_opening: set[asyncio.Task[Running]] = set()


@router.post(
    "/{id}/execute",
    responses={200: {"model": schemas.RunOut, "content": _EVENTS}, **problems(409, 507, body=True)},
)
async def execute(
    request: Request, tenant: Tenant, id: str, body: schemas.ExecuteIn, idempotency_key: IdempotencyKey = None
) -> Response:
    """Run code in a conversation, made if need be. ``Accept: text/event-stream`` gives events as they happen."""
    if len(request.headers.getlist("idempotency-key")) > 1:
        raise InvalidRequest("Idempotency-Key: send one")
    run = RunRequest(
        code=body.code,
        language=body.language,
        timeout_ms=service(request).limits.timeout_ms(body.timeout_ms),
        fresh=body.fresh,
        stdin=None if body.stdin is None else body.stdin.encode(),
        env=body.env,
        limits=RunLimits(**body.limits.model_dump()),
        network=body.network,
    )
    streamed = event_stream.MEDIA_TYPE in request.headers.get("accept", "")
    opening = _open(service(request).begin(tenant, id, run, key=idempotency_key, announced=streamed))
    if streamed:
        return await event_stream.stream(request, opening)
    running = await asyncio.shield(opening)
    return Json(translate.run(await running.result()), headers=event_stream.identity(running))


def _open(begin: Coroutine[Any, Any, Running]) -> asyncio.Task[Running]:
    """Begin a run whether or not the caller stays."""
    opening = asyncio.create_task(begin)
    _opening.add(opening)
    opening.add_done_callback(_opened)
    return opening


def _opened(opening: asyncio.Task[Running]) -> None:
    _opening.discard(opening)
    if not opening.cancelled():
        opening.exception()  # told to the caller, if there still is one


@router.post("/{id}/interrupt", response_model=schemas.InterruptOut, responses=problems(body=True))
async def interrupt(
    request: Request, tenant: Tenant, id: str, body: schemas.InterruptIn | None = None
) -> dict[str, bool]:
    """Stop the run going on; the interpreter is kept if it obeys within 5 s."""
    conversation = await service(request).find(tenant, id)
    return {"interrupted": await conversation.interrupt(body.execution_id if body else None)}


@router.get("/{id}/executions/{execution_id}", responses={200: {"model": schemas.ExecutionOut}, **problems()})
async def get_execution(request: Request, tenant: Tenant, id: str, execution_id: ExecutionId) -> Response:
    """Whether a run waits, runs or has ended, and its result."""
    return Json(translate.execution(await service(request).execution(tenant, id, execution_id)))


@router.get(
    "/{id}/executions/{execution_id}/events",
    responses={200: {"content": _EVENTS}, 204: {"description": "It has ended, and nothing follows."}, **problems()},
)
async def get_events(
    request: Request,
    tenant: Tenant,
    id: str,
    execution_id: ExecutionId,
    after: After = None,
    last_event_id: Annotated[str | None, Header(description="As `after`, which goes before it.")] = None,
) -> Response:
    """The events of a run above number ``after``: those that are kept, then those to come."""
    if after is None and last_event_id is not None:
        if not _NUMBER.fullmatch(last_event_id):
            raise InvalidRequest("Last-Event-ID: the number of an event")
        after = int(last_event_id)
    opening = _open(service(request).execution(tenant, id, execution_id))
    return await event_stream.stream(request, opening, after or 0)


@router.get("/{id}/executions/{execution_id}/results/{number}", responses={200: {"content": {"*/*": {}}}, **problems()})
async def get_result(request: Request, tenant: Tenant, id: str, execution_id: ExecutionId, number: int) -> Response:
    """A picture or other representation that a run showed."""
    return await _blob(request, tenant, id, execution_id, "results", number)


@router.get("/{id}/executions/{execution_id}/{stream}", responses={200: {"content": {"text/plain": {}}}, **problems()})
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
