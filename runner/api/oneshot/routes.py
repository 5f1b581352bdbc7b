"""Routes of the one-shot surface: run, and let go of a lease. ``/healthz`` is everybody's."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from runner.api import auth
from runner.api.config import ApiConfig
from runner.api.keys import Key
from runner.api.oneshot import schemas, translate
from runner.api.oneshot.delivery import Delivery
from runner.api.oneshot.errors import install
from runner.errors import Forbidden
from runner.leases.config import AUTH, TENANT
from runner.leases.service import Leases

router = APIRouter(tags=["one-shot"])
install()

_LONG_BODY: Final = 256 << 10  # reading more than this holds up everybody else
_FORWARDED: Final = "x-forwarded-"
_PASSED_ON: Final = frozenset(("forwarded", "via", "x-real-ip"))  # what proxies add, beside that
_ID: Final = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
_ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": schemas.RunError, "description": text}
    for status, text in {
        400: "The body is no RunRequest, or it asks for network where there is none.",
        401: "No key, or a wrong one, where one is needed.",
        403: "The key does not allow this; or, where none is needed, a web page or a proxy asks.",
        413: "The body has more than 96 MiB, or an input more than the key allows.",
        502: "The sandbox could not be started, or was lost.",
        503: "As many runs go on as may.",
    }.items()
}


def _body() -> dict[str, Any]:
    """The request's body for the OpenAPI; the route reads it itself."""
    schema = schemas.RunRequest.model_json_schema()
    schema["properties"]["files"]["items"] = schema.pop("$defs")["InputFile"]
    return {"required": True, "content": {"application/json": {"schema": schema}}}


async def oneshot_tenant(request: Request) -> str:
    """Whose run it is: the key's tenant, or that of everybody where the surface is open.

    An open surface serves programs of this machine or network: what a web page sends has an Origin, and what a
    reverse proxy passes on says so; both are refused. Raises Unauthorized, Forbidden.
    """
    config: ApiConfig = request.app.state.api_config
    if not auth.is_open(request.scope["path"], config):
        auth.check_scope(request)
        return auth.caller(request).tenant
    if "origin" in request.headers:
        raise Forbidden("requests of web pages are not served here; leave out the Origin header")
    passed_on = next((name for name in request.headers if name in _PASSED_ON or name.startswith(_FORWARDED)), None)
    if passed_on is not None:
        raise Forbidden(
            f"without a key nothing is served that came through a proxy (it has the header {passed_on}): send it here "
            f"directly, or leave {AUTH} unset and have the proxy add `Authorization: Bearer <key>`"
        )
    return TENANT


def upload_limit(request: Request) -> int | None:
    """Bytes that one input may have by the caller's key; None where there is no key, or it names no limit."""
    key: Key | None = request.scope.get(auth.CALLER)
    return None if key is None else key.limits.upload_bytes


Tenant = Annotated[str, Depends(oneshot_tenant)]


def leases_of(request: Request) -> Leases:
    """The one service of this surface."""
    found: Leases = request.app.state.leases
    return found


@router.post("/run", response_model=schemas.RunResponse, responses=_ERRORS, openapi_extra={"requestBody": _body()})
async def run(request: Request, tenant: Tenant) -> Response:
    """Run Python or bash in a container of its own, or in a lease.

    A script that fails or runs out of time is 200 too: the body says so.
    """
    body = await request.body()
    ask = await asyncio.to_thread(translate.ask_of, body) if len(body) > _LONG_BODY else translate.ask_of(body)
    if isinstance(ask, translate.Refusal):
        return Response(ask.body(), media_type="application/json")
    return Delivery(await leases_of(request).run(tenant, ask, upload_limit(request)))


@router.delete(
    "/container/{id}",
    status_code=204,
    response_class=Response,
    responses={status: answer for status, answer in _ERRORS.items() if status in (401, 403)},
    openapi_extra={"parameters": [_ID]},
)
async def release(request: Request, tenant: Tenant) -> Response:
    """Let go of a lease, also of a busy one. An id that was not given by ``/run`` changes nothing."""
    await leases_of(request).release(tenant, request.path_params["id"])
    return Response(status_code=204)
