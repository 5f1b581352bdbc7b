"""The route that gives a file or a folder another name."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from runner.api import conditions
from runner.api.auth import Tenant
from runner.api.problems import problems, reads
from runner.api.v1 import listing, schemas
from runner.api.v1.routing import PLAIN_ID, StrictRoute, check_no_standing_folder, service
from runner.errors import Conflict, InvalidRequest
from runner.workspace import paths

router = APIRouter(prefix="/v1/conversations", tags=["files"], dependencies=[PLAIN_ID], route_class=StrictRoute)


@router.post(
    "/{id}/moves",
    response_model=schemas.FilesOut,
    responses=problems(409, 412, 507, body=True),
    openapi_extra=reads("If-Match"),
)
async def move(request: Request, tenant: Tenant, id: str, body: schemas.MoveIn) -> Response:
    """Move a file, a symbolic link, or a folder with all below it; all of it, or nothing. No bytes are copied.

    ``If-Match`` moves a file only while it has that content.
    """
    workspace = (await service(request).find(tenant, id)).workspace
    source, target = paths.normalise(body.from_), paths.normalise(body.to)
    if source in paths.STANDING_FOLDERS:
        raise Conflict(f"{source} is a folder of every workspace: move what lies in it instead")
    check_no_standing_folder(target)
    if_match, none_match = conditions.for_change(conditions.of(request.headers))
    if none_match and body.overwrite:
        raise InvalidRequest("If-None-Match: * and overwrite contradict each other")
    moved = await workspace.move(source, target, if_absent=not body.overwrite, if_match=if_match)
    return await listing.files(moved)
