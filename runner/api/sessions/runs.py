"""Routes of sessions: made, run in, ended."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Header, Path, Request
from starlette.responses import Response

from runner.api.auth import Tenant
from runner.api.encoding import Json
from runner.api.sessions import schemas, translate
from runner.api.sessions.routing import SessionRoute, decoded, largest, sessions, while_there
from runner.api.sessions.shape import FAULTS
from runner.sessions.runs import Asked, Done

router = APIRouter(tags=["sessions"], route_class=SessionRoute, responses=FAULTS, strict_content_type=False)
SessionId = Annotated[str, Path(description="32 hexadecimal digits.")]
Key = Annotated[str | None, Header(description="Sent again with the same body, the run is given and not repeated.")]


@router.post("/sessions", response_model=schemas.SessionOut)
async def create_session(request: Request, tenant: Tenant, body: schemas.SessionIn | None = None) -> dict[str, Any]:
    """A session. Those with one `archive_key` are one conversation, which is there again after any restart."""
    asked = body or schemas.SessionIn.model_validate({})
    made = await sessions(request).create(
        tenant, _storage(asked.storage), asked.idle_ttl_sec or None, asked.archive_key or None
    )
    return {
        "session_id": made.session,
        "conversation": made.conversation,
        "archive_key": made.archive_key,
        "resumed": made.found,
        "restored_files": made.restored.files,
        "warnings": made.warnings,
    }


@router.post("/exec", responses={200: {"model": schemas.ExecOut}})
async def execute(request: Request, tenant: Tenant, body: schemas.ExecIn, idempotency_key: Key = None) -> Response:
    """Run code in a session; files that it made below `outputs` come with the answer."""
    service = sessions(request)
    most = largest(request)
    inputs = None if body.inputs is None else [(one.path, await decoded(one.data_base64, most)) for one in body.inputs]
    asked = Asked(
        code=body.code,
        timeout_ms=body.timeout_ms or None,
        language=body.language,
        fresh=body.fresh,
        stdin=body.stdin,
        env=body.env,
        key=idempotency_key or None,
        inputs=inputs,
    )
    home, conversation = await service.find(tenant, body.session_id)
    done: Done = await while_there(request, service.runs.run(home, conversation, asked))
    entries = [item.entry for item in done.collected.taken if item.entry is not None]
    return await translate.with_files(translate.ran(done, service.config.output_bytes), conversation.workspace, entries)


@router.delete("/sessions/{session_id}", responses={200: {"model": schemas.SessionDeleteOut}})
async def delete_session(
    request: Request, tenant: Tenant, session_id: SessionId, body: schemas.SessionDeleteIn | None = None
) -> Response:
    """End a session: its files are archived where it has storage, and kept under its `archive_key`; or discarded."""
    asked = body or schemas.SessionDeleteIn()
    ended = await sessions(request).delete(
        tenant, session_id, _storage(asked.storage), asked.discard, asked.archive_key or None
    )
    saved = ended.saved
    return Json({"ok": True, "known": ended.known, "archived": saved.archived, "archive_error": saved.error})


def _storage(given: schemas.StorageIn | None) -> dict[str, Any] | None:
    return None if given is None else given.model_dump()
