"""Routes of tools: the catalogue, and one call on a conversation's files."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body, Path, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from runner.api import conditions, validation
from runner.api.auth import Tenant, upload_limit
from runner.api.encoding import Json, encode
from runner.api.problems import problems, reads
from runner.api.tools import schemas
from runner.api.v1 import translate
from runner.api.v1.routing import PLAIN_ID, StrictRoute, service
from runner.errors import FolioboxError, InvalidRequest
from runner.tools.base import Arguments, Call, Tool, ToolResult
from runner.tools.catalogue import Catalogue
from runner.workspace.paths import check_conversation_id

catalogue_router = APIRouter(prefix="/v1/tools", tags=["tools"], route_class=StrictRoute)
router = APIRouter(prefix="/v1/conversations", tags=["tools"], dependencies=[PLAIN_ID], route_class=StrictRoute)

Form = Annotated[
    Literal["native", "openai", "anthropic", "mcp", "prompt"],
    Query(description="The shape: of a model's interface, or text for its system prompt."),
]
_TEXT: Final[dict[str, Any]] = {"text/plain": {"schema": {"type": "string"}}}


def catalogue(request: Request) -> Catalogue:
    """The catalogue of this application."""
    found: Catalogue = request.app.state.catalogue
    return found


@catalogue_router.get(
    "",
    responses={
        200: {"model": schemas.CatalogueOut, "content": _TEXT},
        304: {"description": "The catalogue is the one that If-None-Match names."},
        **problems(),
    },
    openapi_extra=reads("If-None-Match"),
)
async def list_tools(
    request: Request,
    tenant: Tenant,
    format: Form = "native",
    stateless: Annotated[
        Literal["0", "1"], Query(description="1 leaves out what works on files that a conversation holds already.")
    ] = "0",
    include: Annotated[
        Literal["unavailable"] | None, Query(description="`unavailable` adds the absent ones, and why.")
    ] = None,
) -> Response:
    """The tools that this deployment can serve: the same for the life of the process, so ``ETag`` stays too."""
    found, alone = catalogue(request), stateless == "1"
    if format == "prompt":
        content, media_type = found.prompt(stateless=alone).encode(), "text/plain; charset=utf-8"
    else:
        body = found.listed(format, stateless=alone, unavailable=include is not None)
        content, media_type = encode(body), "application/json"
    digest = hashlib.sha256(content).hexdigest()
    headers = {"ETag": conditions.etag(digest), "Cache-Control": "private, no-cache"}
    if conditions.matches(conditions.of(request.headers).get("if-none-match"), digest):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type=media_type)


@router.post(
    "/{id}/tools/{tool}", responses={200: {"model": schemas.ToolOut}, **problems(409, 502, 504, 507, body=True)}
)
async def call_tool(
    request: Request,
    tenant: Tenant,
    id: str,
    tool: Annotated[str, Path(max_length=200)],
    arguments: Annotated[
        dict[str, Any] | None, Body(description="As the catalogue describes them.", examples=[{"code": "print(1 + 1)"}])
    ] = None,
) -> Response:
    """Call a tool on a conversation, made if need be. Its arguments are the body; ``files`` are what it made."""
    check_conversation_id(id)
    found = catalogue(request)
    chosen = found.find(tool)
    call = Call(
        service=service(request),
        client=request.app.state.fetch_client,
        deployment=found.deployment,
        tenant=tenant,
        conversation=id,
        upload_bytes=upload_limit(request),
        gate=found.gate,
    )
    try:
        return Json(told(await chosen.run(call, read(chosen, arguments or {}, found))))
    except FolioboxError as error:
        if call.stored:
            error.fields["files"] = [translate.artifact(item) for item in call.stored]
        raise


def read(tool: Tool, arguments: dict[str, Any], found: Catalogue) -> Arguments:
    """The arguments as the tool takes them. Raises InvalidRequest, which shows what is expected."""
    try:
        return tool.arguments.model_validate(arguments)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_url=False)]
        detail, places = validation.told(faults, tool.arguments)
        expected = next(offer.schema for offer in found.offers if offer.name == tool.name)
        shape = encode(expected).decode()
        raise InvalidRequest(f"{tool.name}: {detail}; expected {shape}", errors=places) from None


def told(result: ToolResult) -> dict[str, Any]:
    """A tool's answer; a run in full where that is the answer."""
    body = dict(result.body) if result.run is None else {**translate.run(result.run), **result.body}
    return {**body, "files": [translate.artifact(item) for item in result.files]}
