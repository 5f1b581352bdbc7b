"""Routes of conversations: find or create, show, list, purge, reset."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import unquote

from fastapi import APIRouter, Depends, Query, Request
from starlette.responses import JSONResponse, Response

from runner.api.auth import Tenant
from runner.api.v1 import schemas, translate
from runner.conversations.service import ConversationService
from runner.errors import InvalidRequest
from runner.workspace.paths import check_conversation_id


def raw_segments(request: Request, count: int) -> list[str]:
    """The path as sent, cut at its slashes into at most ``count`` parts and not decoded."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    return raw.decode("latin-1").removeprefix(request.scope.get("root_path", "")).split("/", count - 1)


async def whole_id(request: Request) -> None:
    """Refuse an id with an encoded slash: the router sees decoded paths and would cut it there. Raises
    InvalidRequest.
    """
    if "id" in request.path_params:
        segments = raw_segments(request, 5)
        segment = unquote(segments[3]) if len(segments) > 3 else ""
        if segment != request.path_params["id"]:
            check_conversation_id(segment)
            raise InvalidRequest("the address is ambiguous: write its slashes as they are")


PLAIN_ID = Depends(whole_id)
router = APIRouter(prefix="/v1/conversations", tags=["conversations"], dependencies=[PLAIN_ID])


def service(request: Request) -> ConversationService:
    """The one service of this application."""
    found: ConversationService = request.app.state.service
    return found


@router.put("/{id}", responses={201: {"model": schemas.ConversationOut}, 200: {"model": schemas.ConversationOut}})
async def put_conversation(
    request: Request, tenant: Tenant, id: str, body: schemas.ConversationIn | None = None
) -> JSONResponse:
    """Find or create a conversation: 201 for a new one, 200 for a known one. Labels given replace the old ones."""
    conversation, created = await service(request).ensure(tenant, id)
    if body is not None and "labels" in body.model_fields_set:
        await service(request).set_labels(conversation, body.labels)
    labels = await service(request).labels(conversation)
    return JSONResponse(translate.conversation(conversation, labels), 201 if created else 200)


@router.get("/{id}", response_model=schemas.ConversationOut)
async def get_conversation(request: Request, tenant: Tenant, id: str) -> dict[str, Any]:
    """Show a conversation."""
    conversation = await service(request).find(tenant, id)
    return translate.conversation(conversation, await service(request).labels(conversation))


@router.get("", response_model=schemas.ConversationList)
async def list_conversations(
    request: Request,
    tenant: Tenant,
    after: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """Ids of conversations, a page at a time."""
    ids = await service(request).page(tenant, after, limit)
    return {"conversations": ids, "next": ids[-1] if len(ids) == limit else None}


@router.delete("/{id}", status_code=204)
async def delete_conversation(request: Request, tenant: Tenant, id: str) -> Response:
    """Purge a conversation with its files and versions; 204 also when there is none."""
    await service(request).purge(tenant, id)
    return Response(status_code=204)


@router.post("/{id}/reset", status_code=204)
async def reset(request: Request, tenant: Tenant, id: str) -> Response:
    """A new interpreter; files stay."""
    await service(request).reset(tenant, id)
    return Response(status_code=204)
