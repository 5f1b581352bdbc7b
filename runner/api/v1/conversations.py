"""Routes of conversations: find or create, show, list, purge, reset."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from starlette.responses import JSONResponse, Response

from runner.api.auth import Tenant
from runner.api.problems import problems
from runner.api.v1 import schemas, translate
from runner.api.v1.routing import PLAIN_ID, StrictRoute, service
from runner.conversations.checks import check_settings
from runner.errors import InvalidRequest

router = APIRouter(prefix="/v1/conversations", tags=["conversations"], dependencies=[PLAIN_ID], route_class=StrictRoute)
_MAX_FILTERS = 32


@router.put(
    "/{id}",
    responses={
        201: {"model": schemas.ConversationOut},
        200: {"model": schemas.ConversationOut},
        **problems(409, 507, body=True),
    },
)
async def put_conversation(
    request: Request, tenant: Tenant, id: str, body: schemas.ConversationIn | None = None
) -> JSONResponse:
    """Find or create a conversation: 201 for a new one, 200 for a known one.

    Each field that is given replaces the old one as a whole. Limits lower those of the deployment; the answer shows
    what holds.
    """
    changes = {} if body is None else body.model_dump(exclude_unset=True)
    check_settings(service(request).report, changes)  # before anything is made
    conversation, created = await service(request).ensure(tenant, id)
    if changes:
        await service(request).configure(conversation, changes)
    return JSONResponse(translate.conversation(await service(request).describe(conversation)), 201 if created else 200)


@router.get("/{id}", response_model=schemas.ConversationOut, responses=problems())
async def get_conversation(request: Request, tenant: Tenant, id: str) -> dict[str, Any]:
    """Show a conversation with the settings that hold for it."""
    conversation = await service(request).find(tenant, id)
    return translate.conversation(await service(request).describe(conversation))


@router.get("", response_model=schemas.ConversationList, responses=problems())
async def list_conversations(
    request: Request,
    tenant: Tenant,
    after: Annotated[str | None, Query(max_length=128)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    label: Annotated[list[str] | None, Query(description="`name=value`; may be repeated, then all must hold.")] = None,
) -> dict[str, Any]:
    """Conversations in the order of their ids, a page at a time; a page may hold less than ``limit``."""
    page = await service(request).page(tenant, after, limit, _filters(label or []))
    return {"conversations": [translate.item(item) for item in page.items], "next": page.next}


@router.delete("/{id}", status_code=204, responses=problems())
async def delete_conversation(request: Request, tenant: Tenant, id: str) -> Response:
    """Purge a conversation with its files and versions; 204 also when there is none."""
    await service(request).purge(tenant, id)
    return Response(status_code=204)


@router.post("/{id}/reset", status_code=204, responses=problems())
async def reset(request: Request, tenant: Tenant, id: str) -> Response:
    """A new interpreter; files stay."""
    await service(request).reset(tenant, id)
    return Response(status_code=204)


def _filters(given: list[str]) -> dict[str, str]:
    """Labels that must hold. Raises InvalidRequest."""
    wanted: dict[str, str] = {}
    for item in given[: _MAX_FILTERS + 1]:
        name, equals, value = item.partition("=")
        if not equals or not name or wanted.get(name, value) != value or len(given) > _MAX_FILTERS:
            raise InvalidRequest(f"label: write name=value, each name once, at most {_MAX_FILTERS} of them")
        wanted[name] = value
    return wanted
