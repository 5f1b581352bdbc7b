"""Who calls: one key today, compared in constant time; every route but health and documentation asks for it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer
from starlette.datastructures import Headers

from runner.api.config import TENANT, ApiConfig
from runner.errors import Unauthorized

TENANT_KEY = "foliobox.tenant"  # in the scope of a request whose key was checked
_OPEN = frozenset(("/healthz", "/livez", "/readyz", "/docs", "/docs/oauth2-redirect", "/openapi.json"))
_OPEN_FOLDER = "/static-offline-docs/"


def is_open(path: str) -> bool:
    """Whether anybody may ask for this path."""
    return path in _OPEN or path.startswith(_OPEN_FOLDER)


def authenticate(config: ApiConfig, headers: Headers) -> str:
    """The tenant that a request's headers speak for. Raises Unauthorized."""
    if config.key is None:
        return TENANT
    scheme, _, given = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not _equal(given.strip(), config.key):
        raise Unauthorized("send the header `Authorization: Bearer <key>` with the key from SANDBOX_API_KEY")
    return TENANT


async def tenant(request: Request) -> str:
    """The caller's tenant, as the gate found it. Raises Unauthorized. A coroutine: functions cost a thread each."""
    found: str | None = request.scope.get(TENANT_KEY)
    return authenticate(request.app.state.api_config, request.headers) if found is None else found


def _equal(given: str, expected: str) -> bool:
    digests = [hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest() for text in (given, expected)]
    return hmac.compare_digest(*digests)


SCHEME = HTTPBearer(auto_error=False, description="The key from SANDBOX_API_KEY.")  # shown in the documentation
Tenant = Annotated[str, Depends(tenant)]
