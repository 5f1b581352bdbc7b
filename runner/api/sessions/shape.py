"""Error bodies of the sessions surface: ``{"detail": …}``, and ``{"error": …}`` of what comes before the routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from runner.api.config import ApiConfig
from runner.api.encoding import Json

_PATHS: Final = frozenset((
    "/sessions", "/exec", "/files", "/files/get", "/files/list", "/files/reset-inputs",
    "/storage/put", "/storage/delete", "/storage/gc",
))  # fmt: skip
_MEANING: Final = {
    400: "Something in the request cannot be used.",
    401: "No key, or a wrong one: `error` instead of `detail`.",
    403: "The key does not allow this.",
    404: "There is no such session, or no such file.",
    408: "The body made no progress.",
    413: "More than a limit allows.",
    415: "Not used: a body that is no JSON is 422.",
    422: "The body does not fit: `detail` lists places.",
    429: "Busy, or too many wait: Retry-After says when to come again.",
    500: "It could not be done; the text says what.",
    502: "The storage could not do it.",
    503: "No sandbox can be started now.",
}
_BEFORE: Final = {401: "unauthorized", 413: "request body exceeds {limit} bytes"}
_STATUS: Final = {"invalid_path": 400, "unsupported_media_type": 422}  # others elsewhere


class Fault(BaseModel):
    """What the sessions surface answers to an error."""

    detail: Any
    code: str


FAULTS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": Fault, "description": meaning} for status, meaning in _MEANING.items()
}


class SessionsShape:
    """See ``runner/api/shapes.py``."""

    def owns(self, path: str) -> bool:
        """Whether a path belongs to this surface."""
        return path in _PATHS or path.startswith("/sessions/")

    def body_limit(self, path: str, config: ApiConfig) -> int:
        """The most bytes a body may have, declared or sent in chunks."""
        own = config.storage_body_bytes if path == "/storage/put" else config.sessions_body_bytes
        return own or config.max_body_bytes

    def refuse_length(self, declared: str, limit: int) -> Response | None:
        """The protocol judges the length before the key."""
        if not declared.isascii() or not declared.isdigit():
            return Json({"error": "invalid content-length"}, 400)
        if len(declared.lstrip("0")) > 18 or int(declared) > limit:
            return Json({"error": _BEFORE[413].format(limit=limit)}, 413)
        return None

    def fault(
        self, request: Request, status: int, code: str, detail: str, fields: Mapping[str, Any], headers: dict[str, str]
    ) -> Response:
        """The protocol's body, with the code and when to come again beside its text."""
        if status == 401:
            return Json({"error": _BEFORE[401]}, status, headers)
        if status == 413 and code == "too_large" and detail.startswith("the body"):
            return Json({"error": _BEFORE[413].format(limit=fields.get("limit"))}, status, headers)
        status = _STATUS.get(code, status)
        more = {name: fields[name] for name in ("retry_after_ms", "position", "limit") if name in fields}
        if status == 422:
            return Json({"detail": _places(code, detail, fields.get("errors")), "code": code}, status, headers)
        return Json({"detail": detail, "code": code, **more}, status, headers)


def _places(code: str, detail: str, errors: object) -> list[dict[str, Any]]:
    """What does not fit a schema, as a list of places."""
    found = errors if isinstance(errors, list) and errors else [{"field": "body", "message": detail}]
    return [{"type": code, "loc": _steps(str(item["field"])), "msg": item["message"]} for item in found]


def _steps(field: str) -> list[str]:
    return ["body"] if field == "body" else ["body", *field.split(".")]
