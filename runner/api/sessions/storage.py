"""Routes of object storage named in requests."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request

from runner.api.auth import Tenant
from runner.api.sessions import schemas
from runner.api.sessions.routing import SessionRoute, decoded, sessions
from runner.api.sessions.shape import FAULTS
from runner.objects.block import StorageBlock

router = APIRouter(
    prefix="/storage", tags=["sessions"], route_class=SessionRoute, responses=FAULTS, strict_content_type=False
)


@router.post("/put", response_model=schemas.StoragePutOut)
async def put_object(request: Request, tenant: Tenant, body: schemas.StoragePutIn) -> dict[str, Any]:
    """Store an object below the prefix; the answer has a link that expires."""
    block = StorageBlock.parse(body.storage.model_dump(), tenant)
    sessions(request).objects.check(block)
    content = await decoded(body.data_base64)
    done = await sessions(request).objects.put(block, body.key, content, body.content_type, body.expires_in)
    return {"provider": done.provider, "key": done.key, "url": done.url, "expires_in": done.expires_in}


@router.post("/delete", response_model=schemas.StorageDeleteOut)
async def delete_object(request: Request, tenant: Tenant, body: schemas.StorageDeleteIn) -> dict[str, Any]:
    """Delete an object below the prefix; one that is not there is deleted."""
    key = await sessions(request).objects.delete(StorageBlock.parse(body.storage.model_dump(), tenant), body.key)
    return {"ok": True, "key": key}


@router.post("/gc", response_model=schemas.StorageGcOut)
async def collect(request: Request, tenant: Tenant, body: schemas.StorageGcIn) -> dict[str, int]:
    """Delete old archives and conversions below the prefix, but no archive of an open session."""
    storage = None if body.storage is None else body.storage.model_dump()
    deleted, scanned, freed = await sessions(request).sweep_storage(tenant, storage, body.max_age_seconds)
    return {"deleted": deleted, "scanned": scanned, "freed_bytes": freed}
