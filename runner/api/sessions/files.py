"""Routes of a session's files, as base64 inside JSON."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from runner.api.auth import Tenant
from runner.api.encoding import Json
from runner.api.sessions import schemas, translate
from runner.api.sessions.routing import SessionRoute, decoded, largest, sessions
from runner.api.sessions.shape import FAULTS
from runner.workspace.aside import aside

router = APIRouter(
    prefix="/files", tags=["sessions"], route_class=SessionRoute, responses=FAULTS, strict_content_type=False
)


@router.post("", response_model=schemas.SessionFileOut)
async def put_file(request: Request, tenant: Tenant, body: schemas.SessionFileIn) -> dict[str, Any]:
    """Store a file; durable when this answers. A content that the conversation has is not stored or sent again."""
    service = sessions(request)
    _, conversation = await service.find(tenant, body.session_id)
    content = await decoded(body.data_base64, largest(request))
    entry = await service.files.put(conversation, body.path, content)
    return {"ok": True, "path": entry.path, "size": entry.size, "sha256": entry.sha256}


@router.post("/get", responses={200: {"model": schemas.SessionFileGetOut}})
async def get_file(request: Request, tenant: Tenant, body: schemas.SessionFileGetIn) -> Response:
    """A file's bytes, of any size: they are sent as they are read."""
    service = sessions(request)
    _, conversation = await service.find(tenant, body.session_id)
    return await translate.content(*await service.files.open(conversation, body.path))


@router.post("/list", responses={200: {"model": schemas.SessionFileListOut}})
async def list_files(request: Request, tenant: Tenant, body: schemas.SessionFileListIn) -> Response:
    """Regular files in the order of their paths."""
    service = sessions(request)
    _, conversation = await service.find(tenant, body.session_id)
    found = await aside(len(conversation.workspace.files), service.files.list, conversation, body.after, body.limit)
    files = [{"path": item.path, "size": item.size, "sha256": item.sha256} for item in found.files]
    more = files[-1]["path"] if files and len(files) < found.total else None
    return Json({"files": files, "total": found.total, "next": more})


@router.post("/reset-inputs", responses={200: {"model": schemas.SessionResetOut}})
async def reset_inputs(request: Request, tenant: Tenant, body: schemas.SessionResetIn) -> Response:
    """Empty `uploads` and `skills`, and leave the rest."""
    done = await sessions(request).reset_inputs(tenant, body.session_id)
    return Json({"ok": True} if done is None else {"ok": done, "session_gone": not done})
