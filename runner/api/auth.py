"""Who calls, and what they may do: checked from the headers alone, before anything of the body is read.

Every route but health and signed links wants a key; the documentation too, where other machines reach the service.
The gate calls ``admitted``; ``SCHEME``, a dependency of every guarded route, holds the key's scopes against what the
route asks for.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.requests import HTTPConnection
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import Scope

from runner.api import scopes
from runner.api.config import MAX_KEY, ApiConfig
from runner.api.keyring import Holder, Keyring
from runner.api.keys import Key
from runner.errors import Forbidden, Unauthorized
from runner.telemetry import logs

CALLER: Final = "foliobox.caller"  # in the scope of a request whose key was checked
_OPEN: Final = frozenset(("/healthz", "/livez", "/readyz"))
_DOCS: Final = frozenset(("/docs", "/docs/oauth2-redirect", "/openapi.json"))
_DOCS_FOLDER: Final = "/static-offline-docs/"
_LINKS: Final = "/v1/links/"  # what follows is a secret of its own, and checked by the route
ONESHOT: Final = "/run"
ONESHOT_LEASE: Final = "/container/"
_MAX_HEADER: Final = MAX_KEY * 4 + 64
_HOW: Final = "send one header `Authorization: Bearer <key>`"


def is_open(path: str, config: ApiConfig) -> bool:
    """Whether anybody may ask for this path."""
    docs = path in _DOCS or path.startswith(_DOCS_FOLDER)
    if config.open_oneshot and (path == ONESHOT or path.startswith(ONESHOT_LEASE)):
        return True
    return path in _OPEN or path.startswith(_LINKS) or (docs and config.open_docs)


def without_secret(path: str) -> str:
    """A path as it may be logged."""
    return f"{_LINKS}…" if path.startswith(_LINKS) else path


@contextmanager
def admitted(scope: Scope, config: ApiConfig) -> Iterator[None]:
    """Let a request in for as long as it lasts. Raises Unauthorized, and RateLimited beyond the key's limits."""
    if is_open(scope["path"], config):
        yield
        return
    holder = _holder(scope["app"].state.keyring, scope["headers"])
    scope[CALLER] = holder.key
    logs.bind(key=holder.key.name, tenant=holder.key.tenant)
    with holder.quota.held():
        yield


def _holder(keyring: Keyring, headers: list[tuple[bytes, bytes]]) -> Holder:
    if keyring.anonymous is not None:
        return keyring.anonymous
    given = [value for name, value in headers if name == b"authorization"]
    if len(given) != 1:
        raise Unauthorized(f"{_HOW}; {'there is none' if not given else f'there are {len(given)}'}")
    if len(given[0]) > _MAX_HEADER:
        raise Unauthorized(f"{_HOW}; what came is too long for one")
    scheme, _, secret = given[0].strip().partition(b" ")
    secret = secret.strip()
    if scheme.lower() != b"bearer" or not secret:
        raise Unauthorized(f"{_HOW}; the scheme is another, or the key is missing")
    return keyring.find(secret)


def caller(connection: HTTPConnection) -> Key:
    """Whose key the gate found. Raises Unauthorized where it looked for none."""
    found: Key | None = connection.scope.get(CALLER)
    if found is None:
        raise Unauthorized(_HOW)
    return found


async def tenant(request: Request) -> str:
    """The caller's tenant. A coroutine: functions cost a thread each. Raises Unauthorized."""
    return caller(request).tenant


def check_scope(connection: HTTPConnection) -> None:
    """Hold the key's scopes against what the route asks for. Raises Forbidden."""
    key = caller(connection)
    template: str = connection.scope["route"].path_format
    for scope in scopes.needed(connection.scope["method"], template):
        if scope not in key.scopes:
            raise Forbidden(
                f"the key lacks the scope `{scope}`: use one that has it, or make one with `foliobox keys new`",
                scope=scope,
            )


def upload_limit(request: Request) -> int:
    """Bytes that one uploaded file may have: the key's limit or the deployment's, whichever is lower."""
    config: ApiConfig = request.app.state.api_config
    own = caller(request).limits.upload_bytes
    return config.max_upload_bytes if own is None else min(own, config.max_upload_bytes)


def upload_too_large(limit: int) -> str:
    """What a caller is told whose file is larger."""
    return f"a file may have {limit} bytes: split it, or raise SANDBOX_MAX_UPLOAD_BYTES and the key's upload_bytes"


class Scheme(HTTPBearer):
    """How the documentation shows the key, and where scopes are checked: a route has both or neither."""

    def __init__(self) -> None:
        description = "A key of this deployment: SANDBOX_API_KEY, or one made with `foliobox keys new`."
        super().__init__(scheme_name="key", auto_error=False, description=description)

    async def __call__(self, request: HTTPConnection) -> HTTPAuthorizationCredentials | None:
        """Raises Forbidden where the key lacks a scope that the route asks for."""
        check_scope(request)
        return None


SCHEME: Final = Scheme()
Tenant = Annotated[str, Depends(tenant)]
