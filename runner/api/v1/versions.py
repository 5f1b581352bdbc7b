"""Routes of versions: what changed and why, back to one of them, and a new conversation from one."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import JSONResponse

from runner.api.auth import Tenant
from runner.api.problems import problems
from runner.api.v1 import listing, schemas, translate
from runner.api.v1.routing import PLAIN_ID, StrictRoute, service

router = APIRouter(prefix="/v1/conversations", tags=["versions"], dependencies=[PLAIN_ID], route_class=StrictRoute)
Number = Annotated[int, Path(ge=0, le=1 << 53)]


@router.get("/{id}/versions", response_model=schemas.VersionList, responses=problems())
async def list_versions(
    request: Request,
    tenant: Tenant,
    id: str,
    after: Annotated[int | None, Query(ge=0, description="Versions older than this one.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> dict[str, Any]:
    """Versions that are kept, newest first: what each changed, why and when it was made."""
    workspace = (await service(request).find(tenant, id)).workspace
    some, more = listing.page(await workspace.versions(after, limit + 1), limit)
    return {"versions": [translate.version(info) for info in some], "next": some[-1].version if more else None}


@router.get("/{id}/versions/{version}", response_model=schemas.VersionOut, responses=problems())
async def get_version(
    request: Request,
    tenant: Tenant,
    id: str,
    version: Number,
    after: Annotated[str | None, Query(max_length=4096)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 1000,
) -> dict[str, Any]:
    """One version with the files that it changed against the one before it, a page at a time."""
    workspace = (await service(request).find(tenant, id)).workspace
    manifest = await workspace.manifest(version)
    changes = await workspace.changes(version)
    start = 0 if after is None else bisect_right(changes, after, key=lambda change: change.path)
    some, more = listing.page(changes[start : start + limit + 1], limit)
    return {
        **translate.version(manifest.info),
        "files": [translate.change(change) for change in some],
        "next": some[-1].path if more else None,
    }


@router.post("/{id}/restore", response_model=schemas.VersionInfoOut, responses=problems(409, 507, body=True))
async def restore(request: Request, tenant: Tenant, id: str, body: schemas.RestoreIn) -> dict[str, Any]:
    """Make the files what they were in a version, as a new version; none is made when they are that already.

    Waits its turn like a run. A live sandbox has the files before its next run; its variables stay.
    """
    conversation = await service(request).find(tenant, id)
    async with conversation.held():
        result = await conversation.workspace.restore(body.version)
    return translate.version(result.manifest.info)


@router.post(
    "/{id}/fork",
    status_code=201,
    responses={201: {"model": schemas.ConversationOut}, **problems(409, 507, body=True)},
)
async def fork(request: Request, tenant: Tenant, id: str, body: schemas.ForkIn) -> JSONResponse:
    """A new conversation with the files of this one, as they are or as a version had them. No bytes are copied."""
    made = await service(request).fork(tenant, id, body.version, body.id)
    return JSONResponse(translate.conversation(await service(request).describe(made)), 201)
