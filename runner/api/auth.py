"""Who calls: one key today, compared in constant time; every route but health asks for it."""

from __future__ import annotations

import hashlib
import hmac
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPBearer

from runner.api.config import TENANT, ApiConfig
from runner.errors import Unauthorized


async def tenant(request: Request) -> str:
    """The caller's tenant. Raises Unauthorized. A coroutine, since plain functions would cost a thread each call."""
    config: ApiConfig = request.app.state.api_config
    if config.key is None:
        return TENANT
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not _equal(given.strip(), config.key):
        raise Unauthorized("send the header `Authorization: Bearer <key>` with the key from SANDBOX_API_KEY")
    return TENANT


def _equal(given: str, expected: str) -> bool:
    digests = [hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest() for text in (given, expected)]
    return hmac.compare_digest(*digests)


SCHEME = HTTPBearer(auto_error=False, description="The key from SANDBOX_API_KEY.")  # shown in the documentation
Tenant = Annotated[str, Depends(tenant)]
