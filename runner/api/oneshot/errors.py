"""How the one-shot surface says what went wrong: ``{"error": …}`` and the few statuses of its protocol."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from runner.api import shapes
from runner.api.auth import ONESHOT, ONESHOT_LEASE
from runner.api.config import ApiConfig
from runner.api.encoding import Json

BODY_BYTES: Final = 96 << 20
_TOO_LARGE: Final = (
    f"the body has more than {BODY_BYTES} bytes: send fewer or smaller files, or a part of them in one run and the "
    "rest in the next of a lease"
)
_KEPT: Final = frozenset((401, 403, 404, 405, 408, 413, 500))
_BACKEND: Final = frozenset(("backend_unavailable", "sandbox_lost", "agent_protocol", "store_failed"))


def status_of(status: int, code: str) -> int:
    """The status of this protocol for one of ours."""
    if code in _BACKEND:
        return 502
    if status in _KEPT:
        return status
    if status == 429 or status > 500:
        return 503
    return 400


class OneShotShape:
    """Owns the paths of this surface."""

    def owns(self, path: str) -> bool:
        """Whether a path belongs to it."""
        return path == ONESHOT or path.startswith(ONESHOT_LEASE)

    def body_limit(self, path: str, config: ApiConfig) -> int:
        """96 MiB, whatever other surfaces take."""
        return BODY_BYTES

    def refuse_length(self, declared: str, limit: int) -> Response | None:
        """413 before anything of the body is read."""
        if declared.isdigit() and len(declared) < 20 and int(declared) <= limit:
            return None
        return Json({"error": _TOO_LARGE}, 413) if declared.isdigit() else None

    def fault(
        self, request: Request, status: int, code: str, detail: str, fields: Mapping[str, Any], headers: dict[str, str]
    ) -> Response:
        """The answer to an error."""
        text = _TOO_LARGE if code == "too_large" and fields.get("limit") == BODY_BYTES else detail
        return Json({"error": text}, status_of(status, code), headers)


def install() -> None:
    """Have this shape asked from now on."""
    shapes.register(OneShotShape())
