"""Routes of links: make a signed one for a file, and what whoever has it gets."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from runner.api.auth import Tenant
from runner.api.links import MAX_TOKEN, Grant, LinkSigner, unknown
from runner.api.problems import only, problems, reads
from runner.api.v1 import schemas
from runner.api.v1.content import BYTES, entry_at, send_file
from runner.api.v1.routing import PLAIN_ID, OpenRoute, StrictRoute, service
from runner.errors import InvalidRequest, NotFound
from runner.workspace import paths

router = APIRouter(prefix="/v1/conversations", tags=["links"], dependencies=[PLAIN_ID], route_class=StrictRoute)
open_router = APIRouter(prefix="/v1/links", tags=["links"], route_class=OpenRoute)
_ANSWERS = (404, 412, 416, 422, 500, 503)
_REFERRER = "no-referrer"


def signer(request: Request) -> LinkSigner:
    """The one signer of this application."""
    found: LinkSigner = request.app.state.link_signer
    return found


@router.post("/{id}/links", response_model=schemas.LinkOut, responses=problems(body=True))
async def make_link(request: Request, tenant: Tenant, id: str, body: schemas.LinkIn) -> dict[str, Any]:
    """A link that gives the content which a file has now, to whoever has the link, until it expires.

    It ends sooner when the conversation is deleted, and when the file is changed or deleted; with ``version`` it
    gives the file of that version for as long as that is kept.
    """
    workspace = (await service(request).find(tenant, id)).workspace
    entry = await entry_at(workspace, paths.normalise(body.path), body.version)
    expires = signer(request).expiry(body.expires_in_ms)
    grant = Grant(
        tenant, workspace.id, workspace.incarnation, entry.path, entry.sha256, body.version, body.disposition, expires
    )
    token = signer(request).token(grant)
    if len(token) > MAX_TOKEN:
        raise InvalidRequest("the path is too long for a link: give the file a shorter name")
    return {
        "url": f"/v1/links/{token}",
        "expires_at": datetime.fromtimestamp(expires, UTC).isoformat().replace("+00:00", "Z"),
        "path": entry.path,
        "sha256": entry.sha256,
    }


@open_router.get(
    "/{token}",
    responses={200: {"content": BYTES}, 206: {"content": BYTES}, **only(*_ANSWERS)},
    openapi_extra=reads("If-Match", "If-None-Match", "If-Range", "Range"),
)
@open_router.head("/{token}", responses=only(*_ANSWERS), openapi_extra=reads("If-Match", "If-None-Match"))
async def follow_link(request: Request, token: str) -> Response:
    """The file that a link was made for. Asks for no key; a link that is wrong, expired or void is not found."""
    grant = signer(request).grant(token)
    try:
        workspace = (await service(request).find(grant.tenant, grant.conversation)).workspace
        entry = await entry_at(workspace, grant.path, grant.version)
    except NotFound:
        raise unknown() from None
    if workspace.incarnation != grant.incarnation or entry.sha256 != grant.sha256:
        raise unknown()
    response = await send_file(request, workspace, entry, grant.disposition)
    response.headers["Referrer-Policy"] = _REFERRER
    return response
